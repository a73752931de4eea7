"""How long a program says nothing while it could: the sign of one that hangs, whatever it does to limits of its own.

Besides, how long it takes in all, asleep too, how many processes it has, and how much memory they have together.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["LOOK", "MOST_MEMORY", "MOST_PROCESSES", "Watchdog"]

LOOK = 0.02
"""Seconds between two looks at a program."""

MOST_MEMORY = 256 << 20
"""Bytes of all processes of a program that is listened to. With a right one they and the grader have some 80 MB."""

MOST_PROCESSES = 64
"""The dead ones among them that nobody has buried. A right one has three."""

_PAGE = os.sysconf("SC_PAGESIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SLEEPS = ("S", "T", "t", "Z")
_GRACE = 0.25
"""This part of the allowed time, once more, for the answer of one that is asked where it is."""


class Watchdog:
    """The time of a program and its children since the last word: CPU time, and time in which all of them sleep.

    Waiting for a processor is no such time, so a busy machine makes nobody silent.
    """

    def __init__(
        self,
        pid: int,
        members: Callable[[], Sequence[int]],
        *,
        most: float,
        at_start: float,
        in_all: float | None = None,
        wrapped: bool = False,
    ) -> None:
        """Allow `most` seconds between two words, `at_start` seconds before the first one, and so many `in_all`.

        `members` are all processes of the program. `wrapped`: it is the child of `pid` that is to be asked.
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
        self.whole = 0.0
        self.memory = 0
        self.processes = 0

    @property
    def too_slow(self) -> bool:
        """Has it used up the time that it has in all?"""
        return self.whole > self.in_all

    @property
    def too_large(self) -> bool:
        """Has it more memory, or more processes, than any program needs?"""
        return self.memory > MOST_MEMORY or self.processes > MOST_PROCESSES

    @property
    def due(self) -> float:
        """Seconds to the next look; no word brings it forward, for who has just said something is awake."""
        return self.looked + LOOK - time.monotonic()

    def end(self, *, heard: bool) -> bool:
        """Must it be ended? One that is silent is first asked where it is (SIGPROF). `heard`: a word has just come."""
        now = time.monotonic()
        passed = now - self.looked
        if heard and not self.asked:
            self.seconds, self.allowed = 0.0, self.most
        if passed < LOOK:
            return False
        self.looked = now
        used = self._used(passed)
        self.seconds += used
        self.whole += used
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

    def _used(self, passed: float) -> float:
        """The time of all of them since the last look, so many seconds of the wall clock ago."""
        seen = list(_states(self.members()))
        self.processes = len(seen)
        before, self.cpu = self.cpu, sum(cpu for _, cpu, _ in seen)
        self.memory = sum(memory for _, _, memory in seen)
        used = max(0.0, self.cpu - before)  # less than before: a child is gone
        asleep = seen and all(state in _SLEEPS for state, _, _ in seen)
        return used + (min(passed, 2 * LOOK) if asleep else 0.0)  # when more passed we waited for a processor too


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _states(pids: Sequence[int]) -> Iterator[tuple[str, float, int]]:
    """State, CPU seconds, with those of the children that it has buried, and bytes of memory of each that is there."""
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield fields[0], sum(map(int, fields[11:15])) / _TICK, int(fields[21]) * _PAGE
