"""What grading costs, as ratios of CPU time measured side by side (design: targets). Never milliseconds.

G is the CPU time of the strict `gcc -c` of the same submission, V that of stock Valgrind on an empty program. Each
round measures all candidates one after the other; the figures are medians over the rounds. CPU time is user + system
of this process and of everything it started.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader import casefile, pipeline, process
from grader.build.project import FLAGS
from grader.labs import DEFAULT, LABS
from grader.process import Limits
from grader.verdict import Verdict

__all__ = ["main"]

_ROOT = Path(__file__).parents[1]
_LIMITS = Limits(wall_seconds=120, open_files=None)
_TARGET_G = 6.0


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: its name, its median, its spread over the rounds, and the target where there is one."""

    name: str
    value: float
    low: float
    high: float
    target: float | None = None

    @property
    def held(self) -> bool | None:
        """Is the target kept? None where there is none."""
        return None if self.target is None else self.value <= self.target

    def __str__(self) -> str:
        said = {None: "", True: f"  target {self.target}: held", False: f"  target {self.target}: MISSED"}
        return f"{self.name:44} {self.value:8.3f}  ({self.low:.3f} .. {self.high:.3f}){said[self.held]}"


def main() -> None:
    """Run the rounds and print one line for each figure; exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="how often everything is measured (default 9)")
    parser.add_argument("--json", action="store_true", help="print a list of {name, value, target, held}")
    accepted = sorted((_ROOT / "submissions" / DEFAULT / Verdict.ACCEPTED).iterdir())
    parser.add_argument("--submission", type=Path, default=accepted[-1], help="what to grade")
    options = parser.parse_args()
    lines = _measure(options.submission, max(1, options.rounds))
    if options.json:
        rows = [{"name": one.name, "value": one.value, "target": one.target, "held": one.held} for one in lines]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(any(line.held is False for line in lines))


def _measure(submission: Path, rounds: int) -> list[Line]:
    lab = LABS[DEFAULT]()
    cases = casefile.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed)
    stages: dict[str, list[float]] = {}

    def grade() -> None:
        record = pipeline.grade(submission, lab, cases, seed=lab.rubric.seed)
        for stage, seconds in record.cpu_seconds.items():
            stages.setdefault(stage, []).append(seconds)

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / lab.source_name).write_bytes((submission / lab.source_name).read_bytes())
        for header in (_ROOT / "grader" / "drivers" / lab.name).glob("*.h"):
            (work / header.name).write_bytes(header.read_bytes())
        (work / "empty.c").write_text("int main(void) { return 0; }\n")
        _run(["gcc", "empty.c", "-o", "empty"], work)
        candidates: dict[str, Callable[[], None]] = {
            "G": lambda: _run(["gcc", *FLAGS, "-c", lab.source_name, "-o", "bench.o"], work),
            "V": lambda: _run(["valgrind", "-q", "./empty"], work),
            "grading": grade,
        }
        grade()  # the driver is compiled once a machine, and modules are imported once a process
        stages.clear()
        taken: dict[str, list[float]] = {name: [] for name in candidates}
        for _ in range(rounds):
            for name, candidate in candidates.items():
                taken[name].append(_cpu_of(candidate))
    lines = [
        _line("V / G", taken["V"], taken["G"]),
        _line(f"grading {len(cases)} cases / G", taken["grading"], taken["G"], target=_TARGET_G),
        _line(f"grading {len(cases)} cases / V", taken["grading"], taken["V"]),
    ]
    return lines + [_line(f"  {stage} / G", seconds, taken["G"]) for stage, seconds in stages.items()]


def _line(name: str, above: list[float], below: list[float], target: float | None = None) -> Line:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Line(name, statistics.median(ratios), min(ratios), max(ratios), target)


def _cpu_of(work: Callable[[], None]) -> float:
    before = _cpu()
    work()
    return _cpu() - before


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _run(command: list[str], folder: Path) -> None:
    done = process.run(command, cwd=folder, limits=_LIMITS, environment={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    if not done.succeeded:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")


if __name__ == "__main__":
    main()
