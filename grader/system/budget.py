"""The time budget of a submission, shared by the programs started for it and by the grader's own computation.

All time limits are in seconds of a usual machine. The pace of a machine is how many times slower it is, and each
limit is multiplied by the pace. A known-good program is timed to measure it (`Runtime.pace`), and no submission
can change it. Seconds are converted where a program is started (`grader.system.sandbox`), and where a harness is told
its limits.

A correct program needs about one of its 7 seconds, compiler and Valgrind included. A hang is ended long before the
budget is used up, by separate limits:

    replay     An operation is limited to 60 ms, 1,000 times what a correct one needs. If a call first reaches the
               limit, its case is repeated, alone, with 120 ms: 0.18 s for each of the lab's six calls, if it hangs.
               Further hangs of these calls share 0.9 s (harness.c, "time"); with some 280 cases each still has 3 ms.
    Valgrind   A process is ended after 0.3 s without output. Its case is repeated, alone, with 0.6 s. The rest of the
               public (or hidden) cases runs in a third process, which may be ended after 0.3 s more. Hidden cases have
               processes of their own, and there are at most four in total: the fourth may cost 0.3 s too.

All in all, hanging calls cost at most 3 s, or 6 s if they hang under Valgrind too. Time is always the time in which a
program computes or sleeps, never that in which it waits for a processor: on a busy machine a grading takes longer, but
no program counts as slow because of it. Time that a student's program waits in the kernel counts only in the total of
the budget. The budget itself is for programs that never hang but are thousands of times too slow. Cases beyond it are
reported as not run, not compared or (by Valgrind, at no cost of points) not checked. The grader compares the states of
a correct program in 0.1 s, those of a wrong one in 2 s at most. Work with a limit of its own does not count
(`Budget.leave_out`): playing the thousands of traces of a Python lab, and deriving records from a program's log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from grader.core.errors import Abandoned


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """All limits that a slow or hanging program can reach, in seconds. Tests use smaller limits."""

    submission: float = 7.0
    """For a whole submission: its programs, compilers and the grader's own computation. A correct one needs about 1."""
    replay: float = 5.0
    """For all cases of a C submission in all processes, without the memory checker. A correct program needs 0.1."""
    second_replay: float = 2.0
    """For all cases of a further replay of some cases that only adds details, such as lines."""
    operation: float = 0.06
    """For an operation of a call that never hung. A correct program needs 0.00006."""
    least_operation: float = 0.003
    """For an operation of a call that is proven to hang, however little is left of `hangs`."""
    hangs: float = 0.9
    """For all operations of all calls that are proven to hang."""
    python_replay: float = 5.0
    """For all cases of a Python submission in all processes. It is not part of `submission`; see `python_trace`."""
    python_trace: float = 0.01
    """In addition to `python_replay`, for each trace of each case. A correct program needs a quarter of both."""
    python_operation: float = 0.5
    """For an operation of a Python submission. A correct program needs 0.00001."""
    python_least: float = 0.03
    """For an operation of a Python call that is proven to hang, however little is left of `hangs`."""
    silent: float = 2.0
    """Between two reports. The harness reports after every operation, and after every hang."""
    checked_silent: float = 0.3
    """Between two reports under the memory checker. A correct program needs a few milliseconds for an operation."""
    checked: float = 8.0
    """For one whole process under the memory checker."""


TIME_LIMITS = TimeLimits()
"""The limits of every submission."""
IMPATIENT = replace(TIME_LIMITS, hangs=0.1, python_operation=0.05)
"""For preliminary results that `TIME_LIMITS` confirm later, such as a trace that is made smaller."""


_WALL = 300.0
MOST_SECONDS = 3 * _WALL
"""Wall-clock seconds of a whole grading before a batch gives it up. One third is the budget. One is for the grader's
tools, which have 20 s each when the budget is used up. One is for the grader's own computation, on a machine with more
work than processors."""

_LEAST_CPU = 2
_LEAST_WALL = 20.0
"""The least wall-clock seconds of a program: the grader's tools (objcopy, addr2line) also run with an empty budget."""


MOST_PACE = 50.0

TIMING_PACE = 10.0
"""The pace that is assumed while a known-good program is timed. It needs little: even on the slowest machine
it ends before its limits."""


def pace_of(seconds: float, usual: float) -> float:
    """Return the pace of this machine, which needs `seconds` for what a usual machine does in `usual` seconds.

    The pace is never below 1: no limit is shorter than on a usual machine.
    """
    return round(min(max(1.0, seconds / usual), MOST_PACE), 1)


@dataclass(slots=True)
class Budget:
    """The seconds of one submission, as a usual machine counts them (see the module)."""

    limits: TimeLimits = TIME_LIMITS
    """`submission` covers the time in which programs compute or sleep, and in which the grader computes."""
    wall: float = _WALL
    """The wall-clock seconds that are left."""
    paid: float = 0.0
    """The part of `limits.submission` that programs have used."""
    lines: float = 1.5
    """The seconds left for addr2line and objdump, which find the lines of an ordinary program in 0.02 s."""
    traces: float | None = None
    """The seconds left to play the traces of a Python lab; None before the first. Some traces are played again."""
    since: float = field(default_factory=time.thread_time)
    """The grader's CPU time when the budget began."""
    unwanted: Callable[[], bool] = lambda: False
    """Returns whether nobody wants the result any more; then running programs are ended and `Abandoned` is raised."""
    pace: float = 1.0
    """How many times slower this machine is than a usual one."""

    @property
    def cpu(self) -> float:
        """The seconds that are left for programs."""
        return self.limits.submission - self.paid - self.own_seconds(self.since)

    @property
    def empty(self) -> bool:
        """Whether the budget is used up.

        If so, no more student code is started, and the states of a program that differs are no longer compared.
        """
        return self.cpu <= 0 or self.wall <= 0

    def own_seconds(self, since: float) -> float:
        """Return the seconds that the grader itself has computed since `time.thread_time()` was `since`."""
        return (time.thread_time() - since) / self.pace

    def renewed(self, limits: TimeLimits = TIME_LIMITS) -> Budget:
        """Return a new, full budget with these limits, whose result is wanted as long as the result of this budget."""
        return Budget(limits=limits, unwanted=self.unwanted, pace=self.pace)

    def begin_again(self, pace: float) -> None:
        """Make the budget full again, with this pace, because the machine was found to be slower than assumed."""
        whole = Budget()
        self.pace, self.paid, self.wall = pace, whole.paid, whole.wall
        self.lines, self.traces, self.since = whole.lines, whole.traces, whole.since

    def check_wanted(self) -> None:
        """Raise `Abandoned` if nobody wants the result any more."""
        if self.unwanted():
            raise Abandoned

    def take(self, own: float, wall: float) -> None:
        """Subtract the time of a program: `own` seconds that it computed or slept, `wall` seconds by the clock."""
        self.paid += own
        self.wall -= wall

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds, because they have a limit of their own. Negative seconds are counted again."""
        self.since += seconds * self.pace

    def cpu_limit(self, wanted: int | None) -> int:
        """Return the CPU seconds, rounded up to a whole number, that a program may have if it requests `wanted`."""
        left = max(_LEAST_CPU, math.ceil(self.cpu))
        return left if wanted is None else min(wanted, left)

    def wall_limit(self, wanted: float) -> float:
        """Return the wall-clock seconds that a program may have if it requests `wanted`."""
        return min(wanted, max(_LEAST_WALL, self.wall))
