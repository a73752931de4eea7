"""Are the cases of a lab enough? They are played on its wrong samples, and on mutants of its right ones.

A mutant that passes every case says that a case is missing, unless it does the same as the program that it was made
of. Whether it does is not decidable; so random traces are searched for one that tells them apart, for some seconds. A
mutant for which the search finds none counts as the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from grader import pipeline
from grader.assignment.lab import Lab
from grader.classroom.own_cases import TriedProgram
from grader.classroom.workers import ProcessPool
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.labs import open_lab
from grader.search.hunt import hunt
from grader.search.mutants import mutants


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
