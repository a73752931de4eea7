"""Measure how long a program is inactive although it could run: this detects a hang, even if it changes its own limits.

It also measures the program's total time, sleep included, the number of its processes, and their memory together.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

LOOK = 0.02
"""Seconds between two measurements of a program."""

MOST_MEMORY = 256 << 20
"""The most bytes of all processes of an observed program. For a correct one they and the grader use about 80 MB."""

MOST_PROCESSES = 64
"""The most processes, including dead ones whose parent has not waited for them. A correct program has three."""

_PAGE = os.sysconf("SC_PAGESIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SLEEPS = ("S", "T", "t", "Z")
_BLOCKED = "D"
_GRACE = 0.25
"""The fraction of the time used so far that a program gets in addition to answer SIGPROF, which asks where it is."""


class Watchdog:
    """The time of a program and its children since its last output: CPU time, and time in which all of them sleep.

    Time spent waiting for a processor does not count, so no program counts as inactive because the machine is busy.
    Time in which the kernel makes all of them wait, such as for a disk, does not show that they are inactive either; it
    can count in the total.
    """

    def __init__(
        self,
        pid: int,
        members: Callable[[], Sequence[int]],
        *,
        most: float,
        at_start: float,
        in_all: float | None = None,
        blocked_counts: bool = False,
        wrapped: bool = False,
    ) -> None:
        """Allow `most` seconds between two outputs, `at_start` seconds before the first one, and `in_all` in total.

        `blocked_counts`: the total includes time in which the kernel makes all processes wait.
        `members` returns all processes of the program. `wrapped`: SIGPROF goes to the children of `pid`, not to `pid`.
        """
        self.pid = pid
        self.members = members
        self.wrapped = wrapped
        self.most = most
        self.allowed = at_start
        self.seconds = 0.0
        self.cpu = 0.0
        self.looked = time.monotonic()
        self.asked = False
        self.in_all = math.inf if in_all is None else in_all
        self.blocked_counts = blocked_counts
        self.whole = 0.0
        self.memory = 0
        self.processes = 0

    @property
    def too_slow(self) -> bool:
        """Whether the program used more than its total time."""
        return self.whole > self.in_all

    @property
    def too_large(self) -> bool:
        """Whether the program has more memory, or more processes, than any program needs."""
        return self.memory > MOST_MEMORY or self.processes > MOST_PROCESSES

    @property
    def due(self) -> float:
        """Seconds to the next measurement; output does not make it earlier, because it shows that the program runs."""
        return self.looked + LOOK - time.monotonic()

    def end(self, *, heard: bool) -> bool:
        """Whether to end the program. If it is inactive, SIGPROF first asks where it is. `heard`: output just came."""
        now = time.monotonic()
        passed = now - self.looked
        if heard and not self.asked:
            self.seconds, self.allowed = 0.0, self.most
        if passed < LOOK:
            return False
        self.looked = now
        used, blocked = self._used(passed)
        self.seconds += used
        self.whole += used + blocked
        if self.too_slow or self.too_large:
            return True
        if self.seconds < self.allowed:
            return False
        if self.asked:
            return True
        self.asked = True
        self.allowed = self.seconds * (1 + _GRACE)
        for pid in _children(self.pid) if self.wrapped else [self.pid]:
            os.kill(pid, signal.SIGPROF)
        return False

    def _used(self, passed: float) -> tuple[float, float]:
        """Return the seconds that the processes used since the last measurement, `passed` wall-clock seconds ago.

        The second number is the seconds in which they were blocked, where these count.
        """
        seen = list(_states(self.members()))
        self.processes = len(seen)
        before, self.cpu = self.cpu, sum(cpu for _, cpu, _ in seen)
        self.memory = sum(memory for _, _, memory in seen)
        used = max(0.0, self.cpu - before)  # negative when a child is gone
        idle = min(passed, 2 * LOOK)  # if more passed, the grader itself waited too
        states = {state for state, _, _ in seen}
        if not states or not states <= {*_SLEEPS, _BLOCKED}:
            return used, 0.0
        if _BLOCKED not in states:
            return used + idle, 0.0
        return used, idle if self.blocked_counts else 0.0


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _states(pids: Sequence[int]) -> Iterator[tuple[str, float, int]]:
    """Yield for each existing process: state, CPU seconds (children that it waited for included), bytes of memory."""
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield fields[0], sum(map(int, fields[11:15])) / _TICK, int(fields[21]) * _PAGE
