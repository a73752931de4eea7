"""The time of a whole submission: what is started for it and what we compute for it ourselves is paid from one purse.

A right program needs about one of its 7 seconds, compiler and Valgrind included. What hangs is ended long before the
purse is empty, by limits of its own:

    replay     an operation is limited to 60 ms, 1,000 times what a right one needs. In the first case in which a call
               runs into it, it is done again, alone, with 120 ms: 0.18 s for each of the six calls that hangs. From
               then on all its hangs share 0.9 s (harness.c, "time"); with 276 cases each still has 3 ms.
    Valgrind   0.3 s without a word end the process; the case is run again, alone, with 0.6 s; the rest of the public
               (or hidden) cases goes on in a third process, which may be ended after 0.3 s more. Hidden cases have
               processes of their own, and four are the most in all: the fourth may cost 0.3 s too.

So a hang costs at most 3 s in all, one that never comes again 6 s. Time is always the time that a program computes or
sleeps, never that for which it waits for a processor: on a busy machine everything takes longer, and nothing is called
slow for it. The purse itself is for programs that never hang but are thousands of times too slow: what it does not pay
for is said to be not run (replay), not compared (we ourselves: a right program's states are compared in 0.1 s, those of
a wrong one in 2 s at most) or not checked (Valgrind, which then costs no point).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

__all__ = ["MOST_SECONDS", "Budget"]

_WALL = 300.0
MOST_SECONDS = 3 * _WALL
"""By the clock, of a whole grading, before a batch gives it up: once the purse, once for our own tools, which have 20 s
each when the purse is empty, and once for what we compute ourselves, where there is more to do than processors."""

_LEAST_CPU = 2
_LEAST_WALL = 20.0
"""Our own tools (objcopy, addr2line) still run when the purse is empty."""


@dataclass(slots=True)
class Budget:
    """The seconds of one submission."""

    own: float = 7.0
    """For what computes or sleeps: programs, and we ourselves."""
    wall: float = _WALL
    """By the clock; a part of it is left."""
    paid: float = 0.0
    """By programs, of the former."""
    lines: float = 1.5
    """What is left of it for addr2line and objdump: an ordinary program's lines are found in 0.02 s."""
    since: float = field(default_factory=time.thread_time)
    """Our own CPU time when it began."""

    @property
    def cpu(self) -> float:
        """What is left for programs."""
        return self.own - self.paid - (time.thread_time() - self.since)

    @property
    def empty(self) -> bool:
        """Is it used up? Then nothing of the student's is started any more, and what differs is no longer followed."""
        return self.cpu <= 0 or self.wall <= 0

    def take(self, own: float, wall: float) -> None:
        """Pay for a program that ran so long."""
        self.paid += own
        self.wall -= wall

    def cpu_limit(self, wanted: int | None) -> int:
        """What a program that wants so much may have, in the whole seconds of a resource limit."""
        left = max(_LEAST_CPU, math.ceil(self.cpu))
        return left if wanted is None else min(wanted, left)

    def wall_limit(self, wanted: float) -> float:
        """What a program that wants so much may have."""
        return min(wanted, max(_LEAST_WALL, self.wall))
