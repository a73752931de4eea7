"""The time of a whole submission: whatever is started for it takes from one purse.

A right program needs about half a second of it, compiler and Valgrind included. What hangs is ended long before the
purse is empty, by limits of its own:

    replay     an operation is limited to 60 ms, 1,000 times what a right one needs. In the first case in which a call
               runs into it, it is done again, alone, with 120 ms: 0.18 s for each of the six calls that hangs. From
               then on all its hangs share 0.9 s (harness.c, "time"); with 276 cases each still has 3 ms.
    Valgrind   0.3 s without a word end the process; the case is run again, alone, with 0.6 s; the rest of the public
               (or hidden) cases goes on in a third process, which may be ended after 0.3 s more. Hidden cases have
               processes of their own, and four are the most in all: the fourth may cost 0.3 s too.

So a hang costs at most 3 s in all. Time is always the time that a program computes or sleeps, never that for which it
waits for a processor: on a busy machine everything takes longer, and nothing is called slow for it. The purse itself
is for programs that never hang but are thousands of times too slow: what it does not pay for is said to be not run
(replay) or not checked (Valgrind, which then costs no point).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

__all__ = ["MOST_OWN_SECONDS", "MOST_SECONDS", "Budget"]

MOST_OWN_SECONDS = 20.0
"""CPU seconds that we compute ourselves for one submission. A right one needs 0.2, no sample more than 7; what one
shapes is read once and up to stated sizes, so this is for what we forgot."""

_WALL = 300.0
MOST_SECONDS = 3 * _WALL
"""Of a whole grading, before a batch gives it up: once the purse, once for our own tools, which have 20 s each when the
purse is empty, and once for what we compute ourselves, on a machine that has more to do than processors."""

_LEAST_CPU = 2
_LEAST_WALL = 20.0
"""Our own tools (objcopy, addr2line) still run when the purse is empty."""


@dataclass(slots=True)
class Budget:
    """Seconds that are left of the CPU time and the wall-clock time for one submission."""

    cpu: float = 15.0
    wall: float = _WALL
    since: float = field(default_factory=time.thread_time)
    """Our own CPU time when it began."""

    @property
    def late(self) -> bool:
        """Have we ourselves computed too long for the submission? Then nothing more of it is compared."""
        return time.thread_time() - self.since > MOST_OWN_SECONDS

    @property
    def empty(self) -> bool:
        """Is it used up? Then nothing of the student's is started any more."""
        return self.cpu <= 0 or self.wall <= 0

    def take(self, cpu: float, wall: float) -> None:
        """Pay for a program that ran so long."""
        self.cpu -= cpu
        self.wall -= wall

    def cpu_limit(self, wanted: int | None) -> int:
        """What a program that wants so much may have, in the whole seconds of a resource limit."""
        left = max(_LEAST_CPU, math.ceil(self.cpu))
        return left if wanted is None else min(wanted, left)

    def wall_limit(self, wanted: float) -> float:
        """What a program that wants so much may have."""
        return min(wanted, max(_LEAST_WALL, self.wall))
