"""`python -m grader.tests.trials.lanes`: all samples of paged_kv in both lanes; their records must be equal.

Costs are not compared. About half an hour on two processors; scripts/test compares one sample of each verdict.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from grader.tests.support.command import ROOT
from grader.tests.support.lanes import differing, in_both_lanes


def main() -> int:
    """Print what differs, sample by sample, and return 1 if anything does."""
    paths = sorted(path for path in (ROOT / "submissions" / "paged_kv").glob("*/*") if path.is_dir())
    wrong = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for path, differences in zip(paths, pool.map(_compared, paths), strict=True):
            wrong += bool(differences)
            sys.stdout.write("".join(f"{path.parent.name}/{path.name}: {text}\n" for text in differences))
            sys.stdout.flush()
    sys.stdout.write(f"{len(paths) - wrong} of {len(paths)} samples have equal records in both lanes\n")
    return 1 if wrong else 0


def _compared(path: Path) -> list[str]:
    return list(differing(*in_both_lanes(path)))


if __name__ == "__main__":
    sys.exit(main())
