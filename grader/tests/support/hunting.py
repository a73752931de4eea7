"""Search for failing traces of labelled samples, and play traces on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grader.assignment.case_files import select_cases
from grader.assignment.lab import Lab
from grader.assignment.source import collect
from grader.core.case import Case
from grader.core.errors import OptionalStages
from grader.search.hunt import hunt, shrink
from grader.search.player import Domain, FailingTrace, TracePlayer, explicit
from grader.system import sandbox
from grader.system.budget import Budget
from grader.tests.support.command import ROOT

HOSTILE = "hostile"


@contextmanager
def player_of(lab: Lab, path: Path, *, memory_checker: bool = False) -> Iterator[TracePlayer]:
    """Build a sample and yield what plays traces on it. The sample must build."""
    with sandbox.workspace(Budget(), tools=lab.runtime.programs) as work:
        source = collect(path, lab.source_name, rule="")
        built = lab.runtime.build(work, source.content, beside=source.own_headers, optional=OptionalStages())
        generate = lab.generator()
        assert built.program is not None, path
        assert generate is not None
        yield TracePlayer(
            lab,
            work,
            built.program,
            lab.rubric.seed,
            Domain.of(generate, select_cases(lab, seed=lab.rubric.seed).cases),
            memory_checker=memory_checker,
        )


def hunted(player: TracePlayer, *, seconds: float, seed: int = 1) -> FailingTrace | None:
    """Return a failing trace that a search finds; None where it finds none within so many CPU seconds of all programs.

    They are about the wall seconds of a search on a quiet machine, and say the same on a busy one.
    """
    generate = player.lab.generator()
    assert generate is not None
    started = _cpu_seconds()
    return hunt(player, generate, seed, late=lambda: _cpu_seconds() - started > seconds, progress=lambda _: None)


def smallest(player: TracePlayer, *, seconds: float, seed: int = 1) -> FailingTrace | None:
    """Return the smallest failing trace that such a search leads to."""
    failing = hunted(player, seconds=seconds, seed=seed)
    return shrink(player, failing) if failing is not None else None


def _cpu_seconds() -> float:
    """Of this process and of the programs that it waited for."""
    return sum(os.times()[:4])


def superfluous(player: TracePlayer, failing: FailingTrace) -> list[str]:
    """Return the operations without which the same goes wrong as with them."""
    operations, settings = explicit(failing.case.trace.operations), dict(failing.case.trace.settings)
    shorter = [
        player.case([*operations[:place], *operations[place + 1 :]], settings) for place in range(len(operations))
    ]
    cases = {place: case for place, case in enumerate(shorter) if case is not None}
    places = list(cases)
    return [
        str(operations[places[number]])
        for number, trace in player.failing(list(cases.values()))
        if failing.faults[0] in trace.faults
    ]


def accepted(lab: Lab) -> list[Path]:
    """The accepted samples of a lab without the hostile ones."""
    folders = (ROOT / "submissions" / lab.name / "accepted").iterdir()
    return sorted(folder for folder in folders if HOSTILE not in folder.name)


def unfair_to(lab: Lab, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Return the accepted samples on which one of the cases goes wrong, with the calls of these cases."""
    unfair: dict[str, list[str]] = {}
    for path in accepted(lab):
        with player_of(lab, path) as player:
            wrong = [cases[place] for place, _ in player.failing(cases)]
        if wrong:
            unfair[path.name] = ["; ".join(map(str, explicit(case.trace.operations))) for case in wrong]
    return unfair
