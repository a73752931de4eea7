"""Write the program of a labelled sample to stdout; `scripts/sample` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from grader.assignment.samples import program_of
from grader.core.errors import UsageError
from grader.labs import LABS
from grader.tests.support.command import ROOT


def main() -> int:
    """Return 0, or 2 where there is no such sample or its patch does not apply."""
    name = sys.argv[1].removeprefix("submissions/").rstrip("/")
    sample = ROOT / "submissions" / name
    lab = Path(name).parts[0]
    try:
        if lab not in LABS or len(Path(name).parts) != 3 or not sample.is_dir():
            raise UsageError(f"there is no sample {name}; write LAB/VERDICT/NAME, a folder below submissions/")
        sys.stdout.buffer.write(program_of(sample, LABS[lab].source_name))
    except (UsageError, OSError) as error:
        sys.stderr.write(f"scripts/sample: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
