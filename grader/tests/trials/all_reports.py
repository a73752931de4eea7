"""`python -m grader.tests.trials.all_reports`: real readers read every format of every labelled sample.

scripts/test reads those of every third sample.
"""

from __future__ import annotations

import sys

from grader.labs import LABS
from grader.report import FORMATS
from grader.report.view import View
from grader.tests.support.command import ROOT
from grader.tests.support.graded import graded
from grader.tests.support.readers import READERS

_VIEWS = (View(), View(instructor=True))


def main() -> int:
    """Read all of them, with a line for each that is not well-formed."""
    failed = 0
    folders = sorted(path.parent for lab in LABS for path in (ROOT / "submissions" / lab).glob("*/*/expect.toml"))
    for number, folder in enumerate(folders, start=1):
        sys.stderr.write(f"\r{number} of {len(folders)}")
        record = graded(folder.parents[1].name, folder)
        for name, render in FORMATS.items():
            for view in _VIEWS:
                try:
                    READERS[name](render(record, view), view)
                except Exception as error:  # noqa: BLE001 - readers are libraries, each with errors of its own
                    failed += 1
                    sys.stdout.write(f"\n{folder.name}: {name}: {error!r}\n")
    sys.stdout.write(f"\n{failed} reports of {len(folders)} samples are not well-formed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
