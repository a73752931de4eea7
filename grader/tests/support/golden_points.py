"""Write what is computed of the labelled samples of each lab, into `submissions/LAB/`.

`keeps.toml` has the range of points that each sample may keep: a new one around its points where they are outside.
The range of an attack is written by a person. `covering.toml` has the samples that `scripts/test` grades. Samples are
graded as the tests grade them, with a part of the random traces. It is run by `scripts/golden`. Then read `git diff`: a
changed range is a decision, not a detail. Verdicts and rules are written by people and are never changed.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from grader.assignment.samples import COVERING, KEEPS, LABEL, lab_of_sample, label_of, samples_in
from grader.core.verdict import Verdict
from grader.labs import LABS
from grader.tests.support.command import ROOT
from grader.tests.support.covering import covering_text, shown_by
from grader.tests.support.graded import graded

_SLACK = 2
"""The points by which the score of a sample may differ with another gcc or Valgrind."""


def main() -> None:
    """Grade the labelled samples of the labs that are named, or of all, and write both files of each lab."""
    if unknown := {*sys.argv[1:]} - LABS.keys():
        sys.exit(f"golden: there is no lab {', '.join(sorted(unknown))}; there are {', '.join(LABS)}")
    if os.environ.get("CI"):
        sys.exit("golden: not in CI; what is golden is looked at by a person")
    with ProcessPoolExecutor() as pool:
        for lab_name, lab in LABS.items():
            if sys.argv[1:] and lab_name not in sys.argv[1:]:
                continue
            folder = ROOT / "submissions" / lab_name
            ranges, shown = list[str](), dict[str, frozenset[str]]()
            samples = samples_in(folder, lab.source_name)
            for sample, (score, words) in zip(samples, pool.map(_graded, samples), strict=True):
                name = f"{sample.parent.name}/{sample.name}"
                shown[name] = words
                if (sample / LABEL).exists():
                    ranges.append(f'"{name}" = {_range(label_of(sample), score)}\n')
                sys.stderr.write(f"{score:4} {lab_name}/{name}\n")
            (folder / KEEPS).write_text("".join(ranges), encoding="utf-8")
            (folder / COVERING).write_text(covering_text(lab_name, shown), encoding="utf-8")


def _graded(sample: Path) -> tuple[int, frozenset[str]]:
    """Return the points of a sample, and what it shows."""
    lab_name = lab_of_sample(sample)
    record = graded(lab_name, sample)
    return record.score or 0, shown_by(lab_name, sample, record)


def _range(label: dict[str, Any], score: int) -> list[int]:
    """Return the lowest and the highest points of a sample: those of its label, or around what it has now."""
    if "keeps" in label and ("attack" in label or label["keeps"][0] <= score <= label["keeps"][1]):
        return list(label["keeps"])
    exact = label["verdict"] in (Verdict.COMPILE_ERROR, Verdict.ACCEPTED) or score == 0
    slack = 0 if exact else _SLACK
    return [max(0, score - slack), score if exact else min(99, score + slack)]


if __name__ == "__main__":
    main()
