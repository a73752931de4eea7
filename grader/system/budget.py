"""The time budget of a submission: the programs started for it and the grader's own computation share one budget.

All limits of time are in seconds of a usual machine. The pace of a machine is how many times slower it is, and each
limit is multiplied by it. The pace is measured by timing a known-good program of ours (`Runtime.pace`); no submission
can change it. Seconds are converted where a program is started (`grader.system.sandbox`), and where a harness is told
its limits.

A correct program needs about one of its 7 seconds, compiler and Valgrind included. A hang is ended long before the
budget is used up, by separate limits:

    replay     An operation is limited to 60 ms, 1,000 times what a correct one needs. When a call first reaches the
               limit, its case is repeated, alone, with 120 ms: 0.18 s for each of the six calls that hangs. From then
               on all hangs share 0.9 s (harness.c, "time"); with some 280 cases each still has 3 ms.
    Valgrind   A process is ended after 0.3 s without output. Its case is repeated, alone, with 0.6 s. The rest of the
               public (or hidden) cases runs in a third process, which may be ended after 0.3 s more. Hidden cases have
               processes of their own, and there are at most four in total: the fourth may cost 0.3 s too.

So a hang costs at most 3 s in total, and a program that never answers again 6 s. Time is always the time that a program
computes or sleeps, never the time that it waits for a processor: on a busy machine everything takes longer, but nothing
counts as slow because of it. Time that a student's program waits in the kernel counts in its total only. The budget
itself is for programs that never hang but are thousands of times too slow. What exceeds it is reported as not run
(replay), not compared (by the grader: the states of a correct program are compared in 0.1 s, those of a wrong one in 2
s at most) or not checked (Valgrind, which then costs no point). What has a limit of its own is left out
(`Budget.leave_out`): playing the thousands of traces of a Python lab, and what a lab derives of a program's log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from grader.core.errors import Abandoned


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """All limits that a slow or hanging program can reach, in seconds. Smaller ones are for tests."""

    submission: float = 7.0
    """For everything: its programs, the compiler's, and the grader's own computation. A correct one needs about 1."""
    replay: float = 5.0
    """For all cases of a C submission in all processes, without the memory checker. A correct program needs 0.1."""
    second_replay: float = 2.0
    """The same for a run of some cases that only adds details, such as lines."""
    operation: float = 0.06
    """For an operation of a call that never hung. A correct program needs 0.00006."""
    least_operation: float = 0.003
    """For an operation of a call that is proven to hang, however little is left of `hangs`."""
    hangs: float = 0.9
    """For all operations of all calls that are proven to hang."""
    python_replay: float = 5.0
    """For all cases of a Python submission in all processes, beside the time for everything else; see the next one."""
    python_trace: float = 0.01
    """As much again for each trace, random ones counted singly. A correct program needs a quarter of all this."""
    python_operation: float = 0.5
    """For an operation of a Python submission. A correct program needs 0.00001."""
    python_least: float = 0.03
    """For an operation of a Python call that is proven to hang, however little is left of `hangs`."""
    silent: float = 2.0
    """Without a report. The harness reports after every operation, and after every hang."""
    checked_silent: float = 0.3
    """Without a report, under the memory checker. A correct program needs a few milliseconds for an operation."""
    checked: float = 8.0
    """For one process under the memory checker."""


TIME_LIMITS = TimeLimits()
"""Those of every submission."""
IMPATIENT = replace(TIME_LIMITS, hangs=0.1, python_operation=0.05)
"""For results that are confirmed with the limits of every submission, such as a trace that is made smaller."""


_WALL = 300.0
MOST_SECONDS = 3 * _WALL
"""Wall-clock seconds of a whole grading before a batch gives it up. One third is the budget. One is for the grader's
tools, which have 20 s each when the budget is used up. One is for the grader's own computation, on a machine with more
work than processors."""

_LEAST_CPU = 2
_LEAST_WALL = 20.0
"""The grader's tools (objcopy, addr2line) still run when the budget is used up."""


MOST_PACE = 50.0
"""The largest pace."""

TIMING_PACE = 10.0
"""The pace at which a known-good program is timed, which needs much less than a submission may: on the slowest machine
it ends by itself."""


def pace_of(seconds: float, usual: float) -> float:
    """Return how many times slower than a usual machine this one is, if it needs `seconds` where that needs `usual`.

    Never below 1: no limit is shorter than on a usual machine.
    """
    return round(min(max(1.0, seconds / usual), MOST_PACE), 1)


@dataclass(slots=True)
class Budget:
    """The seconds of one submission, as a usual machine counts them (see the module)."""

    limits: TimeLimits = TIME_LIMITS
    """`submission` is for computing and sleeping: of programs, and of the grader."""
    wall: float = _WALL
    """The wall-clock seconds that are left."""
    paid: float = 0.0
    """The part of `limits.submission` that programs have used."""
    lines: float = 1.5
    """The part that is left for addr2line and objdump: an ordinary program's lines are found in 0.02 s."""
    traces: float | None = None
    """The seconds left for the traces of a Python lab, of which some are played again; None before the first."""
    since: float = field(default_factory=time.thread_time)
    """The grader's CPU time when the budget began."""
    unwanted: Callable[[], bool] = lambda: False
    """Whether nobody wants the result any more; then programs are ended with `Abandoned`."""
    pace: float = 1.0
    """How many times slower than a usual machine this one is."""

    @property
    def cpu(self) -> float:
        """The seconds that are left for programs."""
        return self.limits.submission - self.paid - self.own_seconds(self.since)

    @property
    def empty(self) -> bool:
        """Whether it is used up.

        Then no more student code is started, and the states of a program that differs are no longer compared.
        """
        return self.cpu <= 0 or self.wall <= 0

    def own_seconds(self, since: float) -> float:
        """Return the seconds that the grader itself has computed since `time.thread_time()` was `since`."""
        return (time.thread_time() - since) / self.pace

    def renewed(self, limits: TimeLimits = TIME_LIMITS) -> Budget:
        """Return the whole time of these limits, for a result that is wanted as long as this one."""
        return Budget(limits=limits, unwanted=self.unwanted, pace=self.pace)

    def begin_again(self, pace: float) -> None:
        """Give the submission its whole time again, at this pace: the machine was found to be slower than assumed."""
        whole = Budget()
        self.pace, self.paid, self.wall = pace, whole.paid, whole.wall
        self.lines, self.traces, self.since = whole.lines, whole.traces, whole.since

    def check_wanted(self) -> None:
        """Raise `Abandoned` when nobody wants the result any more."""
        if self.unwanted():
            raise Abandoned

    def take(self, own: float, wall: float) -> None:
        """Subtract the time of a program: `own` seconds of its own, `wall` seconds by the clock."""
        self.paid += own
        self.wall -= wall

    def leave_out(self, seconds: float) -> None:
        """Do not count seconds that have a limit of their own; negative ones are those of it that nobody used."""
        self.since += seconds * self.pace

    def cpu_limit(self, wanted: int | None) -> int:
        """Return the CPU seconds that a program may have if it requests `wanted`, whole as for a resource limit."""
        left = max(_LEAST_CPU, math.ceil(self.cpu))
        return left if wanted is None else min(wanted, left)

    def wall_limit(self, wanted: float) -> float:
        """Return the wall-clock seconds that a program may have if it requests `wanted`."""
        return min(wanted, max(_LEAST_WALL, self.wall))
