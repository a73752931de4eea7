"""Try cases on programs: are the cases that a user wrote fair, and are the cases of a lab enough?

Cases are played on the labelled samples of a lab, on mutants of its right programs, or on the submissions of a class.
The steps of a grading decide whether a program passes a case. Steps that only explain are left out.

A mutant that passes every case shows that a case is missing, unless the mutant behaves like the program that it was
made from. No method can decide this in general. So a search plays random traces for some seconds, to find one on which
the mutant goes wrong. If it finds none, the mutant counts as right.

A grade must be in proportion to what a program can do. The table of a lab (submissions/LAB/knock_outs.toml) names a
right program and one that returns plausible, empty values everywhere. For each call, a copy of the right program is
graded in which this call has the body that it has in the empty program.
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
from grader.assignment.samples import KNOCK_OUTS, label_of, read_toml, samples_in
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
    """Whether the program is known to be right."""
    rules: tuple[str, ...] = ()
    """The rules that the program is known to break."""
    mutant_of: str = ""
    """The right program from which this mutant was made; "" if the program is not a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTrial:
    """The result of trying one case."""

    case: Case
    unfair_to: tuple[str, ...]
    """The right programs that fail the case."""
    caught: tuple[str, ...]
    """The other programs that fail the case."""
    guards: tuple[tuple[str, int, int], ...]
    """(rule, caught, all): of the `all` programs whose first rule this is, `caught` fail the case, at least one."""
    alone: tuple[str, ...] = ()
    """The programs that no other case of the trial catches."""


def samples_of(lab: Lab) -> list[TriedProgram]:
    """Return the labelled samples of a lab except attacks; [] if there are none, as in a bundle."""
    return [
        TriedProgram(
            name=f"{sample.parent.name}/{sample.name}",
            source=collect(sample, lab.source_name, rule=""),
            right=sample.parent.name == Verdict.ACCEPTED,
            rules=tuple(label_of(sample).get("rules", ())),
        )
        for sample in samples_in(_folder(lab), lab.source_name)
        if not sample.name.startswith(_HOSTILE)
    ]


def _folder(lab: Lab) -> Path:
    return lab.cases.parents[1] / "submissions" / lab.name


def tried(
    lab: Lab, cases: Sequence[Case], programs: Sequence[TriedProgram], *, jobs: int, memory_checker: bool = False
) -> Iterator[frozenset[str] | None]:
    """Yield for each program the names of the cases that it fails; None if it does not build.

    With `memory_checker` the lab's tool for wrong uses of memory checks the program too, if the lab has one.
    """
    try_program = partial(_failed, lab.name, tuple(cases), memory_checker=memory_checker)
    with ProcessPool(jobs) as pool:
        yield from pool.map(try_program, (program.source for program in programs))


def _failed(lab_name: str, cases: tuple[Case, ...], source: Source, *, memory_checker: bool) -> frozenset[str] | None:
    return pipeline.failed_cases(source, open_lab(lab_name), cases, memory_checker=memory_checker)


def trials(
    cases: Sequence[Case], programs: Sequence[TriedProgram], failed: Sequence[frozenset[str] | None]
) -> list[CaseTrial]:
    """Return the result of each case. Programs that do not build do not count."""
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
    """The smallest trace on which the program differs from a right program; () if the search found none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How well the cases of a lab find wrong programs."""

    killed: Mapping[str, frozenset[str]]
    """The cases that each program fails, by program. Programs that do not build or fail no case are left out."""
    survivors: tuple[Survivor, ...]
    unbuilt: int

    @property
    def missed(self) -> list[Survivor]:
        """The survivors that are known to be wrong, because of their label or of a trace that the search found."""
        return [survivor for survivor in self.survivors if survivor.trace or not survivor.program.mutant_of]

    @property
    def share(self) -> float:
        """The share of the wrong programs that fail a case, 0 to 1."""
        return len(self.killed) / max(1, len(self.killed) + len(self.missed))

    def kills(self) -> Counter[str]:
        """Return the number of programs that fail each case, by case."""
        return Counter(case for cases in self.killed.values() for case in cases)

    def sole_guards(self, cases: Sequence[Case]) -> dict[str, str]:
        """Map each rule that only one case guards to this case: no program fails the rule's other cases."""
        kills = self.kills()
        guards: dict[str, list[str]] = {}
        for case in cases:
            if kills[case.name] and case.rule:
                guards.setdefault(case.rule, []).append(case.name)
        return {rule: names[0] for rule, names in guards.items() if len(names) == 1}

    def redundant(self, cases: Sequence[Case]) -> list[str]:
        """Return cases that can be removed together: for each rule, the same programs still fail one of its cases."""
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
    """Return `count` mutants of the right programs, sampled evenly; fewer if fewer exist.

    Raises `UsageError` if tree-sitter, which parses programs, is not installed.
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
    """Return the calibration. `failed` has the cases that each program fails; `survivors` fail no case."""
    built = {program.name: names for program, names in zip(programs, failed, strict=True) if names is not None}
    return Calibration(
        killed={name: names for name, names in built.items() if names},
        survivors=tuple(survivors),
        unbuilt=len(programs) - len(built),
    )


def searched(lab: Lab, programs: Sequence[TriedProgram], *, seconds: float, jobs: int) -> Iterator[Survivor]:
    """Yield each mutant with a trace on which it differs from a right program; with () if a search finds none."""
    search = partial(_searched, lab.name, seconds)
    with ProcessPool(jobs) as pool:
        yield from pool.map(search, programs)


def _searched(lab_name: str, seconds: float, program: TriedProgram) -> Survivor:
    lab = open_lab(lab_name)
    generate = lab.generator()
    if generate is None:
        return Survivor(program=program)
    end = time.monotonic() + seconds
    search = partial(hunt, generate=generate, seed=1, late=lambda: time.monotonic() > end, progress=lambda _: None)
    failing = pipeline.hunted(program.source, lab, generate, search, seconds=seconds)
    return Survivor(program=program, trace=() if failing is None else tuple(map(str, failing.operations)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockedOut:
    """A right program in which one call does nothing."""

    call: str
    source: Source
    teacher: int
    """The points that a fair teacher would give, according to the lab's table."""


def knocked_out(lab: Lab) -> list[KnockedOut]:
    """Return the programs that the lab's table describes; [] if the lab has no table.

    Raises `UsageError` if the table cannot be read or its calls are not those of the two programs, or if tree-sitter is
    not installed.
    """
    folder = _folder(lab)
    if not (folder / KNOCK_OUTS).exists():
        return []
    match read_toml(folder / KNOCK_OUTS):
        case {"right": str(right_name), "empty": str(empty_name), "teacher": dict(teacher)} if all(
            isinstance(points, int) for points in teacher.values()
        ):
            pass
        case _:
            wanted = 'write right and empty, each "VERDICT/NAME", and a table [teacher] of whole points by call'
            raise UsageError(f"{folder / KNOCK_OUTS}: {wanted}")
    right, empty = (collect(folder / name, lab.source_name, rule="") for name in (right_name, empty_name))
    try:
        programs = dict(knock_outs(right.content, empty.content, lab.runtime.language))
    except ImportError as error:
        raise UsageError("programs are parsed by tree-sitter; run scripts/setup --mutants") from error
    if programs.keys() != teacher.keys():
        others = ", ".join(sorted(programs.keys() ^ teacher.keys()))
        raise UsageError(f"{folder / KNOCK_OUTS}: only the table or only the two programs have {others}")
    return [
        KnockedOut(call=call, source=replace(right, content=programs[call]), teacher=points)
        for call, points in teacher.items()
    ]


def scores(lab: Lab, cases: Sequence[Case], programs: Sequence[KnockedOut], *, jobs: int) -> Iterator[int]:
    """Yield the points that each program gets for these cases."""
    with ProcessPool(jobs) as pool:
        yield from pool.map(partial(_score, lab.name, tuple(cases)), (program.source for program in programs))


def _score(lab_name: str, cases: tuple[Case, ...], source: Source) -> int:
    record = pipeline.grade(Path(source.name), open_lab(lab_name), cases, source=source)
    assert record.score is not None
    return record.score
