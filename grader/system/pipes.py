"""Pipes to and from a running program: bytes move both ways, and neither side waits forever for the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import time
from enum import Enum, auto
from typing import Self

from grader.system.watchdog import LOOK, Watchdog

_CHUNK = 1 << 20
_BREATH = 0.002
"""Seconds to wait between two reads of a program's output: one large read costs less than many small ones."""
_MUCH = 1 << 16
"""Bytes in one read from which there is no such wait: a program that prints much must not wait for the grader."""


def widen(end: int) -> None:
    """Make a pipe larger if the system allows it, for fewer switches between writer and reader."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _CHUNK)


class Pipes:
    """Pipes whose ends are each closed exactly once, because a closed descriptor number is soon reused."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in list(self._open):
            self.close(end)

    def make(self, count: int) -> tuple[list[int], list[int]]:
        """Make `count` pipes, and return (ends to read, ends to write)."""
        pairs: list[tuple[int, int]] = []
        for _ in range(count):
            pair = os.pipe()
            self._open.update(pair)
            pairs.append(pair)
        return [reader for reader, _ in pairs], [writer for _, writer in pairs]

    def close(self, end: int) -> None:
        """Close one end, if it is still open."""
        if end in self._open:
            self._open.remove(end)
            os.close(end)


class Stopped(Enum):
    """Why the traffic with a program ended."""

    ENDED = auto()  # the program ended by itself
    LATE = auto()  # the deadline came first
    SILENT = auto()  # it was inactive for too long
    SLOW = auto()  # it used more than its total time, asleep or not
    LARGE = auto()  # it used more memory, or more processes, than any program needs
    FLOODED = auto()  # it wrote more to one of its channels than allowed


def _why(watchdog: Watchdog) -> Stopped:
    return Stopped.LARGE if watchdog.too_large else Stopped.SLOW if watchdog.too_slow else Stopped.SILENT


_CHANNEL, _WORDS = "channel", "channel 0"


class Traffic:
    """Moves bytes between the grader and a running program, so that neither waits forever for the other."""

    def __init__(self, outputs: dict[int, str], room: dict[str, int], feeds: dict[int, bytes], pipes: Pipes) -> None:
        self.outputs = outputs
        self.pipes = pipes
        self.room = {name: room[name.split()[0]] for name in outputs.values()}
        self.feeds = {end: memoryview(data) for end, data in feeds.items()}
        self.parts: dict[str, list[bytes]] = {name: [] for name in outputs.values()}
        self.cut: set[str] = set()
        self.selector = selectors.DefaultSelector()
        self.moved = 0
        """Bytes that the last `_move` read."""

    def pump(self, pid: int, deadline: float, watchdog: Watchdog | None = None) -> Stopped:
        """Move bytes until the program has ended and its pipes are empty, or a limit is reached; return which."""
        with self.selector:
            for end in self.outputs:
                os.set_blocking(end, False)
                widen(end)
                self.selector.register(end, selectors.EVENT_READ)
            for end in self.feeds:
                os.set_blocking(end, False)
                widen(end)
                self.selector.register(end, selectors.EVENT_WRITE)
            watch = os.pidfd_open(pid)
            self.selector.register(watch, selectors.EVENT_READ)
            try:
                while True:
                    due = LOOK if watchdog is None else watchdog.due
                    ready = self.selector.select(max(0.0, min(due, deadline - time.monotonic())))
                    ended = any(key.fd == watch for key, _ in ready)
                    self._move(ready)
                    if ended:
                        self._drain()
                    if self.flooded:
                        return Stopped.FLOODED
                    if ended:
                        return Stopped.SILENT if watchdog is not None and watchdog.asked else Stopped.ENDED
                    if watchdog is not None and watchdog.end(heard=self._wrote_words(ready)):
                        return _why(watchdog)
                    if time.monotonic() >= deadline:
                        return Stopped.LATE
                    if ready and self.moved < _MUCH:
                        time.sleep(_BREATH)
            finally:
                os.close(watch)

    def _move(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Move one piece for each descriptor that is ready."""
        self.moved = 0
        for key, _ in ready:
            if key.fd in self.feeds:
                self._feed(key.fd)
            elif key.fd in self.outputs:
                self._take(key.fd)

    def _wrote_words(self, ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Whether output came on channel 0, to which a working program writes again and again."""
        return any(self.outputs.get(key.fd) == _WORDS for key, _ in ready)

    @property
    def flooded(self) -> bool:
        """Whether a channel got more than its limit. Of stdout and stderr, the rest is discarded instead."""
        return any(name.startswith(_CHANNEL) for name in self.cut)

    def taken(self, name: str) -> bytes:
        """Return everything that was stored of that output. It works only once: the data may be large, and is freed."""
        return b"".join(self.parts.pop(name))

    def _drain(self) -> None:
        """Read what is left in the pipes; a grandchild that keeps them open causes no delay."""
        for end in list(self.outputs):
            while not self.flooded and self._take(end):
                pass

    def _take(self, end: int) -> bool:
        if end not in self.outputs:
            return False
        try:
            data = os.read(end, _CHUNK)
        except BlockingIOError:
            return False
        name = self.outputs[end]
        self.moved += len(data)
        if not data:
            self.selector.unregister(end)
            del self.outputs[end]
            return False
        part = data[: self.room[name]]
        self.room[name] -= len(part)
        if len(part) < len(data):
            self.cut.add(name)
        self.parts[name].append(part)
        return True

    def _feed(self, end: int) -> None:
        try:
            sent = os.write(end, self.feeds[end][:_CHUNK])
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(self.feeds[end])
        self.feeds[end] = self.feeds[end][sent:]
        if not self.feeds[end]:
            self.selector.unregister(end)
            del self.feeds[end]
            self.pipes.close(end)
