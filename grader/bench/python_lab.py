"""Measure the grading of Python submissions: 100 cases and 1,000 random traces, in starts of an interpreter.

Of the small lab of the tests, and of each assignment with its own cases.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from grader import pipeline
from grader.assignment.case_files import load_folder
from grader.assignment.case_selection import select_cases
from grader.assignment.lab import Lab
from grader.bench.figures import Figure, Target, ratio
from grader.bench.measure import Candidate, Tell, rounds_of
from grader.core.case import Case, Expected, Generated
from grader.core.model import play
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab, present
from grader.system import process
from grader.system.process import Patience
from reference.operation import Trace

_SAMPLES = Path(__file__).parents[2] / "submissions"
_CASES, _TRACES, _LENGTH = 100, 1_000, 60
_TOY = "grader.tests.support.toy_lab"
"""The small lab of the tests: no other one is as plain, so what is measured is the runtime."""


def python_labs(rounds: int, tell: Tell, *, target: Target) -> list[Figure]:
    """Divide the CPU seconds of gradings of right submissions by those of an interpreter that does nothing."""
    toy = import_module(_TOY)
    lab: Lab = toy.lab()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, lab.source_name)
        path.write_text(toy.RIGHT, encoding="utf-8")
        small = f"{_CASES} cases and {_TRACES} random traces of a small lab"
        graded: dict[str, Callable[[], None]] = {small: partial(_grade, path, lab, _cases(lab))}
        graded |= {f"grading of {name}": grade for name, grade in _assignments()}
        candidates = [Candidate(name, grade) for name, grade in graded.items()]
        taken = rounds_of([*candidates, Candidate("interpreter", _start(lab.runtime.programs[0]))], rounds, tell)
    starts = taken["interpreter"]
    return [ratio(f"{name} / interpreter starts", taken[name], starts, target=target) for name in graded]


def _assignments() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the grading of a right submission of each assignment in Python: the first one with the label accepted."""
    for name in present():
        if LABS[name].source_name.endswith(".py"):
            lab = open_lab(name)
            path = min((_SAMPLES / name / Verdict.ACCEPTED).glob(f"*/{lab.source_name}"))
            yield name, partial(_grade, path, lab, list(select_cases(lab, seed=lab.rubric.seed).cases))


def _grade(path: Path, lab: Lab, cases: list[Case]) -> None:
    record = pipeline.grade(path, lab, cases)
    assert record.verdict is Verdict.ACCEPTED, record.findings


def _start(interpreter: str) -> Callable[[], object]:
    return partial(
        process.run,
        [interpreter, "-S", "-c", "pass"],
        cwd=Path("/"),
        limits=Patience(),
        environment={"PATH": os.environ["PATH"]},
    )


def _cases(lab: Lab) -> list[Case]:
    """The lab's cases again and again, and one case of random traces."""
    written = [case for case in load_folder(lab.cases, lab.grammar, seed=1) if case.generated is None]
    several = [replace(written[number % len(written)], name=f"case/{number}") for number in range(_CASES)]
    generator = lab.grammar.generate() if lab.grammar.generate is not None else None
    assert generator is not None
    traces = tuple(tuple(generator(seed, _LENGTH)) for seed in range(_TRACES))
    played = [Trace(operations=operations) for operations in traces]
    digests = tuple(
        Generated.digest((step.record for step in play(lab.model(trace), trace)), lab.grammar.every) for trace in played
    )
    generated = Generated(seeds=range(_TRACES), length=_LENGTH, traces=traces, digests=digests)
    random = replace(
        written[0], name="case/random", trace=Trace(operations=()), expected=Expected.of(()), generated=generated
    )
    return [*several, random]
