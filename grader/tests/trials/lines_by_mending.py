"""Is the line in a report the line of the mistake? And how many programs that are one line from right are mended?

    python -m grader.tests.trials.lines_by_mending [LAB]... [--every N] [--mend SECONDS]

Takes the labelled samples whose patch changes one line, because the patch knows the line of the mistake. Says for how
many the first line in the report is within two lines of it, and with --mend also what `grade mend` finds for each.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.assignment.samples import PATCH, samples_in
from grader.assignment.source import collect
from grader.classroom.mending import mended
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab

_NEAR = 2
_SUBMISSIONS = Path(__file__).parents[3] / "submissions"


def one_line_samples(lab: str, source_name: str) -> Iterator[tuple[Path, int]]:
    """Yield the samples that a patch of one line made from another program, each with the line of the mistake."""
    for sample in samples_in(_SUBMISSIONS / lab, source_name):
        patch = sample / PATCH
        if sample.name.startswith("hostile_") or not patch.is_file():
            continue
        lines = patch.read_text("utf-8").splitlines()
        at, places = 0, []
        for line in lines:
            if line.startswith("@@"):
                at = int(line.split("+")[1].split(",")[0].split()[0])
            elif line[:1] in "+-" and line[:3] not in ("+++", "---"):
                places.append((line[0], at))
            at += line[:1] in {"+", " "}
        if Counter(sign for sign, _ in places) in ({"+": 1, "-": 1}, {"+": 1}, {"-": 1}):
            yield sample, places[0][1]


def main() -> None:
    """Run the trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", nargs="*", default=[*LABS], metavar="LAB")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th sample (1)")
    parser.add_argument("--mend", type=int, metavar="SECONDS", help="look for a change of each, for so long")
    options = parser.parse_args()
    for name in options.labs:
        lab, counts = open_lab(name), Counter[str]()
        cases = select_cases(lab, seed=lab.rubric.seed).cases
        for sample, line in [*one_line_samples(name, lab.source_name)][:: options.every]:
            source = collect(sample, lab.source_name, rule="")
            cause = pipeline.grade(sample, lab, cases, source=source).causes[0]
            reported = [each.line for each in cause.lines]
            if cause.verdict is Verdict.COMPILE_ERROR or not cause.cases:
                continue
            near = min((abs(line - each) for each in reported[:1]), default=None)
            chain = min((abs(line - each) for each in reported), default=None)
            counts["samples"] += 1
            counts["near"] += near is not None and near <= _NEAR
            counts["near in the chain"] += chain is not None and chain <= _NEAR
            told = f"{sample.parent.name}/{sample.name}: mistake in line {line}, reported {reported or 'none'}"
            if options.mend:
                mending = mended(source, lab, cases, seconds=options.mend)
                counts["mended"] += mending.distance is not None
                close = mending.distance is not None and any(
                    abs(a - b) <= _NEAR for a in mending.lines for b in reported[:1]
                )
                counts["mended near the reported line"] += close
                told += f", mended in {mending.lines}" if mending.distance else f", not mended ({mending.tried} tried)"
            sys.stdout.write(f"{told}\n")
            sys.stdout.flush()
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        sys.stdout.write(f"---- {name}: {shown}\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
