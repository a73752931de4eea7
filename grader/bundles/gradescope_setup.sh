#!/bin/bash
# Gradescope runs this once, as root and with network, when it builds the image. Whatever is missing ends the build:
# better no autograder than one that fails for every student.
set -euo pipefail

source=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
export XDG_CACHE_HOME=$source/.cache   # what the grader compiles for itself; run_autograder names the same place
export DEBIAN_FRONTEND=noninteractive

stop() { printf 'setup.sh: %s\n' "$*" >&2 && exit 1; }

if ! command -v python3 >/dev/null; then
    apt-get update
    apt-get install -y --no-install-recommends python3 python3-venv ca-certificates
fi
sh "$source/scripts/setup" || stop "the grader could not be set up (see above)"
"$source/.venv/bin/python" -I -m grader doctor

# One grading, to see that this image can, and to make now what is made only once. The program lacks every function,
# so 1 is the right exit code.
trial=$(mktemp -d)
printf 'typedef int nothing;\n' >"$trial/@SOURCE@"
status=0
"$source/.venv/bin/python" -I -m grader run "$trial" --lab @LAB@ --format json --output "$trial/record.json" || status=$?
[ "$status" = 1 ] || stop "a first grading failed (see above)"
rm -rf "$trial"

chmod o= "$source"
echo "setup.sh: ready"
