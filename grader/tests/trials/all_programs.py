"""`python -m grader.tests.trials.all_programs`: each wrong sample fails with the program of each of its causes.

scripts/test tries all programs of every third sample, and one of each other sample.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grader.tests.support.reproduced import WRONG, Bench, fails_by_itself


def main() -> int:
    """Try all of them, with a line for each sample that does not do what it must."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for number, source in enumerate(WRONG, start=1):
            sys.stderr.write(f"\r{number} of {len(WRONG)}")
            try:
                fails_by_itself(bench, source)
            except AssertionError as error:
                failed += 1
                sys.stdout.write(f"\n{source.parent.name}: {error}\n")
    sys.stdout.write(f"\n{len(WRONG) - failed} of {len(WRONG)} samples fail with each of their programs\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
