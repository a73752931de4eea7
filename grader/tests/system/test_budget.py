"""What a submission may cost: a hang wherever it is three seconds at most, and nothing is taken from a slow program.

Bounds are in seconds of CPU time, of all processes, beyond what a right program costs; so they hold on a busy machine.
Two programs hang with the limits of every submission and on all cases, the others with a tenth and on some cases.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.core.case import Case
from grader.core.errors import TooBusy
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.runtime import runs
from grader.runtime.native.compile import toolchain
from grader.runtime.native.runtime import NativeRuntime
from grader.runtime.native.symptoms import STOPS_WHEN_CHECKED
from grader.runtime.protocol import End, GradingOptions
from grader.system import sandbox
from grader.system.budget import TIME_LIMITS, Budget, TimeLimits
from grader.system.process import Completed
from grader.tests.support.programs import (
    POSIX,
    TENTH,
    around,
    attempted,
    findings,
    first_case,
    right,
    second_case,
)

pytestmark = pytest.mark.usefixtures("whole_libc", "steady")

CALLS = ("llm_init", "create_sequence", "free_sequence", "fork_sequence", "append_kv", "llm_destroy")
_TOP = POSIX + "#include <stdlib.h>\n#include <time.h>\n"
_LOOP = "for (volatile int on = 1; on;) { }"
_DEAF = "signal(SIGPROF, SIG_IGN); sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);"
_UNDER_VALGRIND = 'if (getenv("LD_PRELOAD") != NULL)'
_WORK = "clock_t end = clock() + CLOCKS_PER_SEC / 1000000 * {0}; while (clock() < end) {{ }}"
_MOST_CPU, _MOST_GRADINGS = 3.0, 3.0
"""Seconds that a hang may cost; on a slow machine, where starts cost more, so many ordinary gradings."""
_MOST_IN_ALL = 10.0
_USUAL = 0.6
"""The CPU seconds of an ordinary grading of every `_EVERY`-th case on a usual machine."""
_EVERY = 8
"""Every eighth case: all calls, public and hidden."""
_LISTENED = replace(sandbox.RUN_LIMITS, silent_seconds=10.0, silent_start_seconds=10.0)
_MOST_WALL = 60.0  # other work on this machine may make everything take ten times as long


@dataclass(frozen=True)
class Cost:
    """A whole grading, and what it took."""

    record: Record
    cpu: float
    wall: float


def cost(source: str, *, limits: TimeLimits = TENTH, every: int = _EVERY, pace: float = 1.0) -> Cost:
    """Grade this source on every so many of the lab's cases, as on a machine that is so many times slower."""
    chosen = lab()
    budget = Budget(limits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / chosen.source_name
        path.write_text(source, encoding="utf-8")
        before, started = _used(), time.monotonic()
        options = GradingOptions(allowed=("early",))
        with mock.patch.object(NativeRuntime, "pace", return_value=pace):
            record = pipeline.grade(path, chosen, every_case()[::every], options, budget=budget)
    return Cost(record, _used() - before, time.monotonic() - started)


def _used() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


@cache
def every_case() -> tuple[Case, ...]:
    """All cases of the lab."""
    chosen = lab()
    return tuple(case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed))


@cache
def ordinary(every: int = _EVERY) -> float:
    """The CPU time of grading a right program that is linked like those below: the second time, all is warm."""
    source = _TOP + "extern char *getenv(const char *);\nchar *(*used)(const char *) = getenv;\n" + right()
    cost(source, every=every)
    return cost(source, every=every).cpu


def slower() -> float:
    """How many times longer an ordinary grading takes here than on a usual machine: what is measured does so too."""
    return max(1.0, ordinary() / _USUAL)


def everywhere(statement: str) -> str:
    """A right program, each of whose calls does this first."""
    text = right()
    for call in CALLS:
        text = around(call, statement, top=_TOP, text=text)
    return text


def assert_cheap(source: str, *, fails: bool = True) -> Record:
    """It costs three tenths of a second at most, or two ordinary gradings: Valgrind may start three times more."""
    usual = ordinary()  # first: whoever grades first compiles the driver
    spent = cost(source)

    assert spent.cpu - usual < max(_MOST_CPU / 10, 2 * usual) * slower()
    assert spent.wall < _MOST_WALL
    assert not fails or spent.record.verdict is Verdict.TIME_LIMIT_EXCEEDED
    return spent.record


@pytest.mark.parametrize(
    ("statement", "kind"),
    [(_LOOP, "hang"), (f"{_UNDER_VALGRIND} {_LOOP}", STOPS_WHEN_CHECKED)],
    ids=["native", "Valgrind"],
)
def test_a_hang_costs_three_seconds(statement: str, kind: str) -> None:
    """With the limits of every submission, on all cases."""
    usual = ordinary(every=1)
    spent = cost(around("append_kv", statement, top=_TOP), limits=TIME_LIMITS, every=1)

    assert spent.cpu - usual < max(_MOST_CPU, _MOST_GRADINGS * usual) * slower()
    assert spent.wall < _MOST_WALL
    assert spent.record.verdict is Verdict.TIME_LIMIT_EXCEEDED
    assert kind in {finding.kind for finding in spent.record.findings}


_HANGS: dict[str, str] = {
    "sleeps in the clean-up": around("llm_destroy", "for (;;) pause();", top=_TOP),
    "stops itself": around("append_kv", "raise(SIGSTOP);", top=_TOP),
    "hears no signal": around("create_sequence", _DEAF + _LOOP, top=_TOP),
    "forks": around("append_kv", "for (;;) fork();", top=_TOP),
    "each call in its own case": everywhere(f"static int calls; if (calls++ % 7 == 5) {_LOOP}"),
    "before main": f"{_TOP}__attribute__((constructor)) static void early(void) {{ {_LOOP} }}\n{right()}",
    "sleeps before main": f"{_TOP}__attribute__((constructor)) static void early(void) {{ pause(); }}\n{right()}",
    "stops the driver": around("append_kv", f"kill(getppid(), SIGSTOP); {_LOOP}", top=_TOP),
    "under Valgrind": around("append_kv", f"{_UNDER_VALGRIND} {_LOOP}", top=_TOP),
    "under Valgrind, in the clean-up": around("llm_destroy", f"{_UNDER_VALGRIND} {_LOOP}", top=_TOP),
    "under Valgrind, hears no signal": around("append_kv", f"{_UNDER_VALGRIND} {{ {_DEAF} {_LOOP} }}", top=_TOP),
    "under Valgrind, sleeps": around("append_kv", f"{_UNDER_VALGRIND} for (;;) pause();", top=_TOP),
}


@pytest.mark.parametrize("source", _HANGS.values(), ids=_HANGS)
def test_any_other_hang_ends_too(source: str) -> None:
    """Asleep, deaf, many, early, late, or for Valgrind only."""
    assert_cheap(source)


def test_a_program_a_hundred_times_slower_than_others_keeps_all_points() -> None:
    """0.1 to 0.3 ms in each call, where others need two microseconds: Valgrind may not see all, which costs nothing."""
    spent = cost(
        everywhere("for (volatile int i = 0; i < 150000; i++) { }"), limits=TimeLimits(submission=2.5), every=3
    )

    assert spent.record.score == spent.record.max_score
    assert spent.record.unchecked == "" or spent.record.unchecked.endswith("They cost no point.")
    assert spent.cpu < _MOST_IN_ALL * slower() * 2.5 / TIME_LIMITS.submission


def test_what_hangs_in_one_call_does_not_hurry_another() -> None:
    """After a proven hang of one call an operation of another one still has its whole time."""
    text = around("free_sequence", _LOOP, top=_TOP)
    work = _WORK.format(4_000)
    source = around("append_kv", f"    static int calls; if (calls++ == 0) {{ {work} }}", top=_TOP, text=text)
    attempt = attempted(source, *[second_case()] * 20, *[first_case()] * 2, limits=TENTH)

    assert {comparison.ending_kind for comparison in attempt.comparisons[:20]} == {"hang"}
    assert {comparison.end for comparison in attempt.comparisons[20:]} == {End.REACHED}


def test_what_is_not_paid_for_is_said_to_be_not_run() -> None:
    """No call hangs, but all of them are far too slow: what was earned stays, and the report says what happened."""
    attempt = attempted(everywhere(_WORK.format(5_000)), *[first_case()] * 10, limits=TimeLimits(replay=0.1))
    ends = [comparison.end for comparison in attempt.comparisons]
    first_out = ends.index(End.NO_TIME)

    assert ends == [End.REACHED] * first_out + [End.NO_TIME] * (10 - first_out)
    assert 0 < first_out < 9
    assert {finding.verdict for finding in findings(attempt)} == {Verdict.TIME_LIMIT_EXCEEDED}
    assert findings(attempt)[-1].message.startswith("not run: ")
    assert attempt.first_cause is not None
    assert attempt.first_cause.verdict is Verdict.TIME_LIMIT_EXCEEDED


@pytest.mark.parametrize("pace", [1.0, 5.0, 20.0, 50.0])
def test_a_right_program_keeps_all_points_at_any_pace(pace: float) -> None:
    """And the report says by how much limits are longer."""
    graded = cost(right(), pace=pace).record

    assert (graded.verdict, graded.environment.pace) == (Verdict.ACCEPTED, pace)
    assert sum(graded.cpu_seconds.values()) < 5  # of this machine, not of a usual one that many times faster


@pytest.mark.parametrize("call", CALLS)
def test_a_hang_ends_within_six_paces_of_a_slower_machine(call: str) -> None:
    """With a tenth of the limits."""
    usual = ordinary()
    spent = cost(around(call, _LOOP, top=_TOP), pace=5.0)

    assert spent.cpu - usual < 6 * 5.0 / 10
    assert spent.record.verdict is Verdict.TIME_LIMIT_EXCEEDED


def test_a_machine_that_has_become_slower_gives_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is too slow, and a file that gcc cannot compile in time, have another try with longer limits."""
    slow = around("append_kv", f"    static int calls; if (calls++ == 1) {{ {_WORK.format(200_000)} }}", top=_TOP)
    for now, score in ((1.0, False), (8.0, True)):
        monkeypatch.setattr(NativeRuntime, "pace_now", lambda _, now=now: now)
        monkeypatch.setattr(runs, "_timed", {})
        graded = cost(slow, limits=TIME_LIMITS).record

        assert (graded.score == graded.max_score, graded.environment.pace) == (score, now)
    monkeypatch.setattr(toolchain, "COMPILE_LIMITS", replace(sandbox.COMPILE_LIMITS, own_seconds=0.02))
    for now, verdict in ((1.0, Verdict.COMPILE_ERROR), (50.0, Verdict.ACCEPTED)):
        monkeypatch.setattr(NativeRuntime, "pace_now", lambda _, now=now: now)
        monkeypatch.setattr(runs, "_timed", {})

        assert cost(right()).record.verdict is verdict


def test_a_purse_is_shared_by_all_that_runs_in_a_workspace() -> None:
    """Each program takes what it used; an empty purse starts nothing of the student's, but our own tools run."""
    with sandbox.workspace(Budget(TimeLimits(submission=0.05), wall=100)) as work:
        work.run(["/bin/sh", "-c", "while :; do :; done"], limits=replace(_LISTENED, own_seconds=0.1))

        assert work.budget.empty
        assert work.budget.cpu > -5
        assert work.run(["true"], limits=sandbox.RUN_LIMITS).succeeded


def test_a_program_that_is_slow_in_every_step_costs_what_a_submission_may() -> None:
    """No call hangs, each needs most of what it may have, natively and under Valgrind: the purse ends it."""
    graded = cost(everywhere(_WORK.format(45_000)), limits=TimeLimits(submission=1.5, replay=1.0), every=1)

    assert graded.record.verdict is Verdict.TIME_LIMIT_EXCEEDED
    assert graded.cpu < _MOST_IN_ALL * slower() * 1.5 / TIME_LIMITS.submission


def test_a_machine_without_time_is_not_the_students_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is late though no call is slow raises; nobody gets a record with fewer points."""
    run: Callable[..., Completed] = sandbox.Workspace.run

    def late(self: sandbox.Workspace, command: object, **options: object) -> Completed:
        done = run(self, command, **options)
        return Completed(exit_code=None, signal=9, timed_out=True, cpu_seconds=0.1) if done.channels else done

    monkeypatch.setattr(sandbox.Workspace, "run", late)

    with pytest.raises(TooBusy):
        attempted(right(), first_case())
