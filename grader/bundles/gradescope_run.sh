#!/bin/bash
# Gradescope runs this for each submission, as root. results.json is there from the first moment on and always whole:
# without points until the grading has come to its end. Gradescope shows results without points as an autograder that
# failed, and nobody gets a zero for it.
umask 022

name=${BASH_SOURCE[0]##*/}
place=$(cd -- "${BASH_SOURCE[0]%"$name"}." && pwd -P)   # /autograder, where Gradescope puts a copy of this
source=$place/source
if ! [ -d "$source/grader" ]; then   # everything here is about to be shut: it must be the right place
    echo "run_autograder: the grader is not in $source" >&2
    exit 1
fi
results=$place/results/results.json
export XDG_CACHE_HOME=$source/.cache
unset PYTHONPATH PYTHONHOME

# tell TEXT: results without points. TEXT stands between JSON's quotes, so that nothing else has to work for it.
tell() {
    mkdir -p "${results%/*}"
    printf '{"output": "%s", "output_format": "text", "test_output_format": "text", "visibility": "visible"}\n' "$1" \
        >"$results.new"
    mv -f "$results.new" "$results"
}
quoted() { "$source/.venv/bin/python" -I -c 'import json, sys; print(json.dumps(sys.stdin.read())[1:-1])'; }

no_fault="This is not your fault and costs no points."
interrupted="Grading was interrupted, so there are no points. $no_fault Hand in again, or tell your course staff."
tell "$interrupted"

# Student code runs as another user. Nothing of ours is for that user's eyes, not even if the sandbox had a hole.
if ! chmod o= "$place"/*; then
    tell "The autograder could not close its files to other users, so nothing was run. $no_fault Tell your course staff."
    exit 0
fi

cd -- "$place" || exit 1
# Which hand-in it is, by Gradescope's own list of those before; unknown where there is none.
hand_in=$("$source/.venv/bin/python" -I -c 'import json, sys
print(len(json.load(open(sys.argv[1]))["previous_submissions"]) + 1)' "$place/submission_metadata.json" 2>/dev/null)
said=$(mktemp)
trap '[ -z "$grading" ] || kill -TERM "$grading"' TERM INT HUP
"$source/.venv/bin/python" -I -m grader run submission --lab @LAB@ ${hand_in:+--hand-in "$hand_in"} \
    --format gradescope --output "$results" >"$said" 2>&1 &
grading=$!
wait "$grading"
status=$?
while [ "$(jobs -pr)" = "$grading" ]; do   # our own signal ended the wait
    wait "$grading"
    status=$?
done
cat "$said"   # Gradescope shows this to the staff only

case $status in
    0 | 1) ;;   # graded
    # Our options are right, and our files were when the image was built: it is about what was handed in.
    2) tell "Nothing was graded, which costs no points. Hand in one @SOURCE@, and mind:\n$(quoted <"$said")" ;;
    130 | 137 | 143) tell "$interrupted" ;;   # from outside, such as by the time limit
    *) tell "The autograder broke. $no_fault Tell your course staff." ;;
esac
rm -f "$said"
exit 0
