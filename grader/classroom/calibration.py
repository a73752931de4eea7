"""Cases tried on programs: are those that a user wrote fair, and are those of a lab enough?

Cases are played on the labelled samples of a lab, on mutants of its right ones, or on the submissions of a class.
Whether a program passes a case is decided by the steps of a grading, without those that only explain.

A mutant that passes every case says that a case is missing, unless it does the same as the program that it was made
of. Whether it does is not decidable; so random traces are searched for one that tells them apart, for some seconds. A
mutant for which the search finds none counts as the same.

A grade must be in proportion to what is there. The table of a lab (submissions/LAB/knock_outs.toml) names a right
program and one that returns plausible, empty values everywhere. One call after the other gets its body, and the result
is graded as any submission.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from grader import pipeline
from grader.assignment.lab import Lab
from grader.assignment.samples import knock_outs_of, label_of, samples_in
from grader.assignment.source import Source, collect
from grader.classroom.workers import ProcessPool
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.core.verdict import Verdict
from grader.labs import open_lab
from grader.search.hunt import hunt
from grader.search.mutants import knock_outs, mutants

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A program that passes every case: a mutant, or a labelled sample, which is known to be wrong."""

    program: TriedProgram
    trace: tuple[str, ...] = ()
    """The smallest trace that tells it from a right program; none: the search found none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the cases of a lab are worth."""

    killed: Mapping[str, frozenset[str]]
    """By program, the cases that it fails; programs that do not build or fail none are left out."""
    survivors: tuple[Survivor, ...]
    unbuilt: int

    @property
    def missed(self) -> list[Survivor]:
        """The survivors that are labelled as wrong, or that a search tells from a right program."""
        return [survivor for survivor in self.survivors if survivor.trace or not survivor.program.mutant_of]

    @property
    def share(self) -> float:
        """The part of the distinguishable programs that fail a case."""
        return len(self.killed) / max(1, len(self.killed) + len(self.missed))

    def kills(self) -> Counter[str]:
        """By case, the number of programs that fail it."""
        return Counter(case for cases in self.killed.values() for case in cases)

    def sole_guards(self, cases: Sequence[Case]) -> dict[str, str]:
        """The rules of which only one case fails any program, with that case."""
        kills = self.kills()
        guards: dict[str, list[str]] = {}
        for case in cases:
            if kills[case.name] and case.rule:
                guards.setdefault(case.rule, []).append(case.name)
        return {rule: names[0] for rule, names in guards.items() if len(names) == 1}

    def redundant(self, cases: Sequence[Case]) -> list[str]:
        """The cases without which every rule fails the same programs: one after the other, in the order of the lab."""
        of_rule: dict[str, list[str]] = {}
        for case in cases:
            of_rule.setdefault(case.rule, []).append(case.name)
        fails = {name: {program for program, names in self.killed.items() if name in names} for name in self.kills()}
        superfluous: list[str] = []
        for names in of_rule.values():
            left = list(names)
            for name in names:
                others = set().union(*(fails.get(other, set()) for other in left if other != name))
                if fails.get(name, set()) <= others and len(left) > 1:
                    left.remove(name)
                    superfluous.append(name)
        return superfluous


def mutants_of(lab: Lab, rights: Sequence[TriedProgram], count: int, seed: int) -> list[TriedProgram]:
    """Return so many mutants of right programs, drawn evenly; fewer where there are not as many.

    Raises `UsageError` where what parses programs is not installed.
    """
    random = Random(seed)
    drawn: list[TriedProgram] = []
    try:
        pools = [(right, list(mutants(right.source.content, lab.runtime.language))) for right in rights]
    except ImportError as error:
        raise UsageError("mutants need tree-sitter; run scripts/setup --mutants") from error
    for _, pool in pools:
        random.shuffle(pool)
    while len(drawn) < count and any(pool for _, pool in pools):
        for right, pool in pools:
            if pool and len(drawn) < count:
                mutant = pool.pop()
                origin = Path(right.name).name
                name = f"{origin}:{mutant.line}:{mutant.column} {mutant.change}"
                source = replace(right.source, content=mutant.content)
                drawn.append(TriedProgram(name=name, source=source, mutant_of=origin))
    return drawn


def calibration(
    programs: Sequence[TriedProgram], failed: Sequence[frozenset[str] | None], survivors: Sequence[Survivor]
) -> Calibration:
    """Return what the cases are worth, by the cases that each program fails, and the programs that fail none."""
    built = {program.name: names for program, names in zip(programs, failed, strict=True) if names is not None}
    return Calibration(
        killed={name: names for name, names in built.items() if names},
        survivors=tuple(survivors),
        unbuilt=len(programs) - len(built),
    )


def searched(lab: Lab, programs: Sequence[TriedProgram], *, seconds: float, jobs: int) -> Iterator[Survivor]:
    """Yield each mutant that fails no case, with a trace that tells it from a right program, if a search finds one."""
    search = partial(_searched, lab.name, seconds)
    with ProcessPool(jobs) as pool:
        yield from pool.map(search, programs)


def _searched(lab_name: str, seconds: float, program: TriedProgram) -> Survivor:
    lab = open_lab(lab_name)
    generate = lab.generator()
    if generate is None:
        return Survivor(program=program)
    started = time.monotonic()
    search = partial(
        hunt,
        generate=generate,
        seed=1,
        late=lambda: time.monotonic() - started > seconds,
        progress=lambda _: None,
    )
    failing = pipeline.hunted(program.source, lab, generate, search, seconds=seconds)
    return Survivor(program=program, trace=() if failing is None else tuple(map(str, failing.operations)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockedOut:
    """A right program in which one call does nothing."""

    call: str
    source: Source
    teacher: int
    """The points of a fair teacher."""


def knocked_out(lab: Lab) -> list[KnockedOut]:
    """Return the programs of a lab's table, none where it has none.

    Raises `UsageError` where the table names other calls than the two programs have, or tree-sitter is not installed.
    """
    folder = lab.cases.parents[1] / "submissions" / lab.name
    table = knock_outs_of(folder)
    if table is None:
        return []
    right, empty = (collect(sample, lab.source_name, rule="") for sample in (table.right, table.empty))
    try:
        programs = dict(knock_outs(right.content, empty.content, lab.runtime.language))
    except ImportError as error:
        raise UsageError("programs are parsed by tree-sitter; run scripts/setup --mutants") from error
    if programs.keys() != table.teacher.keys():
        others = ", ".join(sorted(programs.keys() ^ table.teacher.keys()))
        raise UsageError(f"{folder / 'knock_outs.toml'}: only the table or only the two programs have {others}")
    return [
        KnockedOut(call=call, source=replace(right, content=programs[call]), teacher=points)
        for call, points in table.teacher.items()
    ]


def scores(lab: Lab, cases: Sequence[Case], programs: Sequence[KnockedOut], *, jobs: int) -> Iterator[int]:
    """Yield the points of each program."""
    with ProcessPool(jobs) as pool:
        yield from pool.map(partial(_score, lab.name, tuple(cases)), (program.source for program in programs))


def _score(lab_name: str, cases: tuple[Case, ...], source: Source) -> int:
    record = pipeline.grade(Path(source.name), open_lab(lab_name), cases, source=source)
    assert record.score is not None
    return record.score
