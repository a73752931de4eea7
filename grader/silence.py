"""How long a program says nothing while it could: the sign of one that hangs, whatever it does to limits of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LOOK", "Silence"]

LOOK = 0.05
"""Seconds between two looks at a program."""

_TICK = os.sysconf("SC_CLK_TCK")
_SLEEPS = ("S", "T", "t", "Z")
_GRACE = 0.25
"""This part of the allowed time, once more, for the answer of one that is asked where it is."""


class Silence:
    """The time of a program and its children since the last word: CPU time, and time in which all of them sleep.

    Waiting for a processor is no such time, so a busy machine makes nobody silent.
    """

    def __init__(self, pid: int, *, most: float, at_start: float, wrapped: bool = False) -> None:
        """Allow `most` seconds between two words and `at_start` seconds before the first one.

        `wrapped`: it is the child of `pid` that is to be asked.
        """
        self.pid = pid
        self.wrapped = wrapped
        self.most = most
        self.allowed = at_start
        self.seconds = 0.0
        self.cpu = 0.0
        self.looked = time.monotonic()
        self.asked = False

    def end(self, *, heard: bool) -> bool:
        """Has it been silent for too long? First it is asked where it is (SIGPROF). `heard`: a word has just come."""
        now = time.monotonic()
        passed = now - self.looked
        if heard and not self.asked:
            self.seconds, self.allowed = 0.0, self.most
        if passed < LOOK:
            return False
        self.looked = now
        self.seconds += self._used(passed)
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
        seen = list(_states([self.pid, *_descendants(self.pid)]))
        before, self.cpu = self.cpu, sum(cpu for _, cpu in seen)
        used = max(0.0, self.cpu - before)  # less than before: a child is gone
        asleep = seen and all(state in _SLEEPS for state, _ in seen)
        return used + (min(passed, 2 * LOOK) if asleep else 0.0)  # when more passed we waited for a processor too


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _states(pids: list[int]) -> Iterator[tuple[str, float]]:
    """State and CPU seconds of each process that is still there."""
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield fields[0], (int(fields[11]) + int(fields[12])) / _TICK
