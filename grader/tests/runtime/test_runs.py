"""A run that ended oddly is believed only when it ends so again, and a known-good program does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from grader.core.errors import OutOfRoom, TooBusy
from grader.runtime import runs
from grader.runtime.protocol import Program
from grader.runtime.runs import run_confirmed
from grader.system import resources, sandbox
from grader.system.budget import IMPATIENT, TIME_LIMITS, Budget
from grader.system.sandbox import Workspace
from grader.tests.support.counter.runtime import ShellRuntime
from grader.tests.support.programs import native

_STUDENTS = Program(content=b"students", source_name="llm_memory.c")
_KNOWN_GOOD = Program(content=b"known-good", source_name="llm_memory.c")


@dataclass(frozen=True, slots=True)
class _Seen:
    unexplained_end: str
    late: bool = False


class _Machine(ShellRuntime):
    """A runtime on a machine with these paces, one after the other."""

    language = "machine"

    def __init__(self, paces: Iterator[float]) -> None:
        self.paces = paces

    def pace_now(self) -> float:
        """Without running anything."""
        return next(self.paces)


@dataclass(slots=True)
class _Runs:
    """What the runs of the student's program say, one after the other, and those of the known-good one."""

    students: Iterator[str]
    known_good: str = ""
    order: list[bytes] = field(default_factory=list)

    def __call__(self, work: Workspace, program: Program) -> _Seen:
        """One run."""
        assert work.folder.is_dir()
        self.order.append(program.content)
        return _Seen(self.known_good if program is _KNOWN_GOOD else next(self.students))


@pytest.fixture
def sure() -> Iterator[Callable[[_Runs], _Seen]]:
    """How it is done with a lab whose known-good program needs no build."""
    with sandbox.workspace() as work:
        yield lambda runs: run_confirmed(work, _STUDENTS, runs, runtime=native(), known_good=lambda _: _KNOWN_GOOD)


def test_what_comes_once_is_passed_over(sure: Callable[[_Runs], _Seen]) -> None:
    """The second run counts."""
    runs = _Runs(iter(["killed", ""]))

    assert sure(runs) == _Seen("")
    assert runs.order == [b"students", b"known-good", b"students"]


def test_what_comes_again_is_the_programs_own(sure: Callable[[_Runs], _Seen]) -> None:
    """And is judged as it is."""
    assert sure(_Runs(iter(["killed", "killed again"]))) == _Seen("killed again")


def test_what_the_kernel_ended_for_want_of_memory_is_this_machines(
    sure: Callable[[_Runs], _Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known-good program needs less, so it does not show."""
    count = iter(range(10))
    monkeypatch.setattr(resources, "memory_kills", lambda: next(count))

    with pytest.raises(OutOfRoom, match="memory"):
        sure(_Runs(iter(["killed", "killed"])))


def _tries(machine: _Machine, budget: Budget, *, late: bool = True) -> list[float]:
    """The paces at which a program is run that reaches a limit of time at each pace below 4, or at none."""
    paces = []

    def run(work: Workspace, _: Program) -> _Seen:
        paces.append(work.budget.pace)
        return _Seen("", late=late and work.budget.pace < 4)

    runs._timed.pop(machine.language, None)
    with sandbox.workspace(budget) as work:
        run_confirmed(work, _STUDENTS, run, runtime=machine, known_good=lambda _: _KNOWN_GOOD)
    return paces


def test_a_limit_of_time_counts_only_where_the_machine_is_as_fast_as_before() -> None:
    """Else the limits follow, and the program is run once more; what is not late times nothing."""
    assert _tries(_Machine(iter([5.0])), Budget()) == [1.0, 5.0]
    assert _tries(_Machine(iter([1.1])), Budget()) == [1.0]
    assert _tries(_Machine(iter([3.0])), Budget(pace=3.0)) == [3.0]
    assert _tries(_Machine(iter([])), Budget(), late=False) == [1.0]
    assert _tries(_Machine(iter([])), Budget(IMPATIENT)) == [1.0]


def test_a_machine_is_timed_after_each_late_run() -> None:
    """And not again where that was done since the run began."""
    machine = _Machine(iter([1.0, 1.0]))
    runs._timed.pop(machine.language, None)
    began = time.monotonic()
    with sandbox.workspace() as work:
        found = [runs.has_become_slower(work, machine, since=began) for _ in range(3)]
        found.append(runs.has_become_slower(work, machine, since=time.monotonic()))

    assert found == [False] * 4
    assert list(machine.paces) == []


def test_a_machine_that_is_slower_than_any_limit_grades_nobody() -> None:
    """A right program could run into the longest limits there."""
    with sandbox.workspace(Budget(pace=50.0)) as work, pytest.raises(TooBusy, match="50 times slower"):
        runs.has_become_slower(work, _Machine(iter([50.0])), since=time.monotonic())


def test_another_try_has_the_whole_time() -> None:
    """What the first try took on a slow machine is not charged."""
    with sandbox.workspace(Budget(paid=5.0, wall=10.0, lines=0.1, traces=0.0)) as work:
        runs._timed.pop(_Machine.language, None)
        runs.has_become_slower(work, _Machine(iter([20.0])), since=time.monotonic())
        budget = work.budget

        assert (budget.pace, budget.paid, budget.wall, budget.lines, budget.traces) == (20.0, 0.0, 300.0, 1.5, None)
        assert budget.limits == TIME_LIMITS
        assert budget.cpu > 6.9
