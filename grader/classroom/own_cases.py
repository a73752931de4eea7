"""Cases that users wrote, tried on programs: the labelled samples of a lab, or the submissions of a class.

Whether a program passes a case is decided by the stages of a grading, without those that only explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from grader import pipeline
from grader.assignment.lab import Lab
from grader.assignment.samples import label_of, samples_in
from grader.assignment.source import Source, collect
from grader.classroom.workers import ProcessPool
from grader.core.case import Case
from grader.core.verdict import Verdict
from grader.labs import open_lab

_HOSTILE = "hostile_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedProgram:
    """A program on which cases are tried."""

    name: str
    source: Source
    right: bool = False
    """Whether it is known to be right."""
    rules: tuple[str, ...] = ()
    """The rules that it is known to break."""
    mutant_of: str = ""
    """The right program of which it is a mutant, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTrial:
    """What became of one case."""

    case: Case
    unfair_to: tuple[str, ...]
    """The right programs that fail it."""
    caught: tuple[str, ...]
    """The other programs that fail it."""
    guards: tuple[tuple[str, int, int], ...]
    """For each rule that a caught program breaks: how many of its programs are caught, and how many there are."""
    alone: tuple[str, ...] = ()
    """The programs that no other case of the trial catches."""


def samples_of(lab: Lab) -> list[TriedProgram]:
    """Return the labelled samples of a lab but attacks; none where there are no samples, as in a bundle."""
    folder = lab.cases.parents[1] / "submissions" / lab.name
    return [
        TriedProgram(
            name=f"{sample.parent.name}/{sample.name}",
            source=collect(sample, lab.source_name, rule=""),
            right=sample.parent.name == Verdict.ACCEPTED,
            rules=tuple(label_of(sample).get("rules", ())),
        )
        for sample in samples_in(folder, lab.source_name)
        if not sample.name.startswith(_HOSTILE)
    ]


def tried(
    lab: Lab, cases: Sequence[Case], programs: Sequence[TriedProgram], *, jobs: int, memory_checker: bool = False
) -> Iterator[frozenset[str] | None]:
    """Yield for each program the names of the cases that it fails; None for one that does not build.

    With `memory_checker` the tool that finds wrong uses of memory looks on, where the lab has one.
    """
    try_program = partial(_failed, lab.name, tuple(cases), memory_checker=memory_checker)
    with ProcessPool(jobs) as pool:
        yield from pool.map(try_program, (program.source for program in programs))


def _failed(lab_name: str, cases: tuple[Case, ...], source: Source, *, memory_checker: bool) -> frozenset[str] | None:
    return pipeline.failed_cases(source, open_lab(lab_name), cases, memory_checker=memory_checker)


def trials(
    cases: Sequence[Case], programs: Sequence[TriedProgram], failed: Sequence[frozenset[str] | None]
) -> list[CaseTrial]:
    """Return what became of each case; programs that do not build say nothing."""
    built = [(program, names) for program, names in zip(programs, failed, strict=True) if names is not None]
    wrong = [(program, names) for program, names in built if not program.right]
    return [
        CaseTrial(
            case=case,
            unfair_to=tuple(program.name for program, names in built if program.right and case.name in names),
            caught=tuple(program.name for program, names in wrong if case.name in names),
            guards=tuple(_guards(case, wrong)),
            alone=tuple(program.name for program, names in wrong if len(cases) > 1 and names == {case.name}),
        )
        for case in cases
    ]


def _guards(case: Case, wrong: Iterable[tuple[TriedProgram, frozenset[str]]]) -> Iterator[tuple[str, int, int]]:
    of_rule: dict[str, list[bool]] = {}
    for program, names in wrong:
        for rule in program.rules[:1]:
            of_rule.setdefault(rule, []).append(case.name in names)
    counts = [(rule, sum(caught), len(caught)) for rule, caught in of_rule.items()]
    yield from sorted((count for count in counts if count[1]), key=lambda count: (-count[1], count[0]))
