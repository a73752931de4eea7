"""A run that ended oddly is believed only when it ends so again, and a known-good program does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from grader.core.errors import DriverError, OutOfRoom
from grader.core.verdict import Verdict
from grader.runtime.native import runtime
from grader.runtime.native.native_played import NativeReplayed
from grader.runtime.native.replay import replay
from grader.runtime.protocol import Program
from grader.runtime.runs import run_confirmed
from grader.system import resources, sandbox
from grader.system.sandbox import Workspace
from grader.tests.support.programs import POSIX, around, first_case, graded_text, native, right, second_case

_STUDENTS = Program(content=b"students", source_name="llm_memory.c")
_KNOWN_GOOD = Program(content=b"known-good", source_name="llm_memory.c")


@dataclass(frozen=True, slots=True)
class _Seen:
    unexplained_end: str


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
        yield lambda runs: run_confirmed(work, _STUDENTS, runs, known_good=lambda _: _KNOWN_GOOD)


def test_what_ends_well_is_run_once(sure: Callable[[_Runs], _Seen]) -> None:
    """A right program pays for nothing of this."""
    runs = _Runs(iter([""]))

    assert sure(runs) == _Seen("")
    assert runs.order == [b"students"]


def test_what_comes_once_is_passed_over(sure: Callable[[_Runs], _Seen]) -> None:
    """The second run counts."""
    runs = _Runs(iter(["killed", ""]))

    assert sure(runs) == _Seen("")
    assert runs.order == [b"students", b"known-good", b"students"]


def test_what_comes_again_is_the_programs_own(sure: Callable[[_Runs], _Seen]) -> None:
    """And is judged as it is."""
    assert sure(_Runs(iter(["killed", "killed again"]))) == _Seen("killed again")


def test_what_a_known_good_program_does_too_is_this_machines(sure: Callable[[_Runs], _Seen]) -> None:
    """Nobody is graded by it, and the reason is told."""
    with pytest.raises(DriverError, match=r"known-good program.*the disk burns"):
        sure(_Runs(iter(["killed"]), known_good="the disk burns"))


def test_what_the_kernel_ended_for_want_of_memory_is_this_machines(
    sure: Callable[[_Runs], _Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known-good program needs less, so it does not show."""
    count = iter(range(10))
    monkeypatch.setattr(resources, "memory_kills", lambda: next(count))

    with pytest.raises(OutOfRoom, match="memory"):
        sure(_Runs(iter(["killed", "killed"])))


def test_a_program_that_kills_itself_is_judged_for_it() -> None:
    """As before: it does so in every run."""
    record = graded_text(around("append_kv", "    if (engine != NULL) raise(SIGKILL);", top=POSIX), second_case())

    assert record.verdict is Verdict.RUN_TIME_ERROR


@pytest.mark.parametrize("status", [9, 7, 97 << 8, 100 << 8], ids=["killed", "bus error", "no report", "no memory"])
def test_a_case_that_was_ended_from_outside_is_run_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Its verdict is that of an undisturbed grading."""
    ended: list[str] = []

    def disturbed(*work: object, **options: object) -> NativeReplayed:
        replayed = replay(*work, **options)  # type: ignore[arg-type]
        if not ended:
            ended.append(replayed.played[0].case.name)
            replayed.played[0].steps.pop()
            replayed.played[0].status = status
        return replayed

    monkeypatch.setattr(runtime, "replay", disturbed)
    record = graded_text(right(), first_case())

    assert ended == [first_case().name]
    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


def test_the_known_good_program_of_a_lab_runs() -> None:
    """All its calls refuse, and every case comes to its end, natively and under Valgrind."""
    with sandbox.workspace() as work:
        program = native().known_good(work)
        left = list(work.folder.iterdir())
        replayed = replay(work, program, [first_case(), second_case()], driver=native().driver)

    assert left == []
    assert replayed.unexplained_end == ""
    assert all(one.ended for one in replayed.played)
    assert program.checked.startswith(b"\x7fELF")
