"""`python -m grader.tests.trials.all_reports`: all formats say the same of every labelled sample.

Each report is read by who really reads it. scripts/test does so with every third sample of paged_kv.
"""

from __future__ import annotations

import sys

from grader.assignment.samples import samples_in
from grader.labs import LABS
from grader.tests.support.agreeing import books_agree, formats_agree
from grader.tests.support.command import ROOT
from grader.tests.support.graded import graded


def main() -> int:
    """Read all of them, with a line for each sample whose reports do not agree."""
    failed = 0
    folders = [sample for lab in LABS for sample in samples_in(ROOT / "submissions" / lab, LABS[lab].source_name)]
    records = []
    for number, folder in enumerate(folders, start=1):
        sys.stderr.write(f"\r{number} of {len(folders)}")
        records.append(graded(folder.parents[1].name, folder))
        try:
            formats_agree(records[-1])
        except Exception as error:  # noqa: BLE001 - readers are libraries, each with errors of its own
            failed += 1
            sys.stdout.write(f"\n{folder.name}: {error!r}\n")
    books_agree(records)
    sys.stdout.write(f"\nthe reports of {failed} of {len(folders)} samples do not agree\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
