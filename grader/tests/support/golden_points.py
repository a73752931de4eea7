"""Write into `submissions/LAB/keeps.toml` the range of points that each sample may keep, computed from its points now.

Samples are graded as the tests grade them, with a part of the random traces. It is run by `scripts/golden`. Then read
`git diff`: a changed range is a decision, not a detail. Verdicts and rules are written by people and are never changed.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from grader.assignment.samples import KEEPS
from grader.core.verdict import Verdict
from grader.pytest_plugin.items import graded
from grader.tests.support.command import ROOT

_SLACK = 2
"""The points by which the score of a sample may differ with another gcc or Valgrind."""


def main() -> None:
    """Grade all labelled samples and write `keeps.toml` of each lab."""
    if os.environ.get("CI"):
        sys.exit("golden: not in CI; what is golden is looked at by a person")
    labels = sorted((ROOT / "submissions").glob("*/*/*/expect.toml"))
    ranges: dict[Path, list[str]] = {}
    with ProcessPoolExecutor() as pool:
        for label, score in zip(labels, pool.map(_score, labels), strict=True):
            verdict, name = label.parts[-3:-1]
            exact = verdict in (Verdict.COMPILE_ERROR, Verdict.ACCEPTED) or score == 0
            slack = 0 if exact else _SLACK
            most = score if exact else min(99, score + slack)
            line = f'"{verdict}/{name}" = [{max(0, score - slack)}, {most}]\n'
            ranges.setdefault(label.parents[2] / KEEPS, []).append(line)
            sys.stderr.write(f"{score:4} {label.parent.relative_to(ROOT)}\n")
    for path, lines in ranges.items():
        path.write_text("".join(lines), encoding="utf-8")


def _score(label: Path) -> int:
    return graded(label.relative_to(ROOT).parts[1], label.parent).score or 0


if __name__ == "__main__":
    main()
