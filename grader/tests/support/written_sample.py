"""Write the program of a labelled sample to stdout; `scripts/sample` runs it."""

from __future__ import annotations

import sys

from grader.assignment.samples import program_of, samples_in
from grader.core.errors import UsageError
from grader.labs import LABS
from grader.tests.support.command import ROOT


def main() -> int:
    """Return 0, or 2 where there is no such sample or its patch does not apply."""
    name = sys.argv[1].removeprefix("submissions/").rstrip("/")
    lab, folder = name.partition("/")[0], ROOT / "submissions"
    known = samples_in(folder / lab, LABS[lab].source_name) if lab in LABS else []
    try:
        if folder / name in known:
            sys.stdout.buffer.write(program_of(folder / name, LABS[lab].source_name))
            return 0
        said = f"there is no sample {name}; write LAB/VERDICT/NAME, a folder below submissions/"
    except UsageError as error:
        said = str(error)
    sys.stderr.write(f"scripts/sample: {said}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
