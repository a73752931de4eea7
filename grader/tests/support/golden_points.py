"""Write into every `expect.toml` the range of points that its sample may keep, computed from its points now.

Samples are graded as the tests grade them, with a part of the random traces. It is run by `scripts/golden`. Then read
`git diff`: a changed range is a decision, not a detail. Verdicts and rules are written by people and are never changed.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from grader.core.verdict import Verdict
from grader.pytest_plugin.items import graded
from grader.tests.support.command import ROOT

_SLACK = 2
"""The points by which the score of a sample may differ with another gcc or Valgrind."""


def main() -> None:
    """Grade all labelled samples and rewrite the line `keeps` of each label."""
    if os.environ.get("CI"):
        sys.exit("golden: not in CI; what is golden is looked at by a person")
    labels = sorted((ROOT / "submissions").glob("*/*/*/expect.toml"))
    with ProcessPoolExecutor() as pool:
        for label, score in zip(labels, pool.map(_score, labels), strict=True):
            verdict = label.parent.parent.name
            exact = verdict in (Verdict.COMPILE_ERROR, Verdict.ACCEPTED) or score == 0
            slack = 0 if exact else _SLACK
            most = score if exact else min(99, score + slack)
            line = f"keeps   = [{max(0, score - slack)}, {most}]\n"
            text = re.sub(r"^keeps\s*=.*\n", "", label.read_text(encoding="utf-8"), flags=re.MULTILINE)
            label.write_text(text.rstrip("\n") + "\n" + line, encoding="utf-8")
            sys.stderr.write(f"{score:4} {label.parent.relative_to(ROOT)}\n")


def _score(label: Path) -> int:
    return graded(label.relative_to(ROOT).parts[1], label.parent).score or 0


if __name__ == "__main__":
    main()
