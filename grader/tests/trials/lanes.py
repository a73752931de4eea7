"""`python -m grader.tests.trials.lanes`: all samples of paged_kv in both lanes; their records must be equal.

Costs are not compared, nor the line at which an endless loop was met. What a hostile program does depends on time and
on where memory lies, so its records are only shown where they differ; neither lane may give it all points. What a
store far outside the pool meets is another matter in the other lane, so of some samples it is known that they differ.
About half an hour on two processors; scripts/test compares a few samples.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from grader.core.verdict import Verdict
from grader.tests.support.command import ROOT
from grader.tests.support.hunting import HOSTILE
from grader.tests.support.lanes import differing, in_both_lanes


def main() -> int:
    """Print what differs, sample by sample, and return 1 if anything does."""
    paths = sorted(path for path in (ROOT / "submissions" / "paged_kv").glob("*/*") if path.is_dir())
    differing_samples = fooled_by = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for path, (differences, fooled) in zip(paths, pool.map(_compared, paths), strict=True):
            differing_samples += bool(differences) and HOSTILE not in path.name
            fooled_by += fooled
            lines = [*differences, *(["it has all points"] if fooled else [])]
            sys.stdout.write("".join(f"{path.parent.name}/{path.name}: {text}\n" for text in lines))
            sys.stdout.flush()
    count = sum(HOSTILE not in path.name for path in paths)
    sys.stdout.write(f"records differ of {differing_samples} of {count} samples that are not hostile\n")
    return 1 if differing_samples or fooled_by else 0


def _compared(path: Path) -> tuple[list[str], bool]:
    records = in_both_lanes(path)
    wrong = path.parent.name != Verdict.ACCEPTED
    return list(differing(*records)), wrong and any(record.score == record.max_score for record in records)


if __name__ == "__main__":
    sys.exit(main())
