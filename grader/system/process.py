"""The only interface to other programs: argument lists, time limits, bounded output, and an end for every program."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Self

from grader.core.errors import Abandoned, CannotStart, OutOfRoom
from grader.system.folders import noexec
from grader.system.process_tree import LOOK, Family, Patience, Watchdog, adopt_orphans, delayed_interrupts

_PAUSES = (0.05, 0.5, None)
"""Seconds between attempts to start a process; None: no further attempt."""

MOST_CHANNEL = 80_000_000
"""The most bytes of an extra pipe. Except for attacks, no sample reports a ninth of this for half of some 280 cases."""

_CHUNK = 1 << 20
_BREATH = 0.002
"""Seconds to wait between two reads of a program's output: one large read costs less than many small ones."""
_MUCH = 1 << 16
"""After a read of this many bytes there is no wait: a program that prints much must not wait for the grader."""


class _Pipes:
    """A set of pipes. Each end is closed exactly once, because the number of a closed descriptor is soon reused."""

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


class _TrafficEnd(Enum):
    """Why the grader stopped exchanging data with a program."""

    ENDED = auto()  # the program ended by itself
    LATE = auto()  # the deadline came first
    SILENT = auto()  # it was inactive for too long
    SLOW = auto()  # it used more than its total time, asleep or not
    LARGE = auto()  # it used more memory, or more processes, than any program needs
    FLOODED = auto()  # it wrote more to one of its channels than allowed


class _Traffic:
    """Moves bytes between the grader and a running program, so that neither waits forever for the other."""

    def __init__(self, outputs: dict[int, str], room: dict[str, int], feeds: dict[int, bytes], pipes: _Pipes) -> None:
        self.outputs = outputs
        self.pipes = pipes
        self.room = {name: room[name.split()[0]] for name in outputs.values()}
        self.feeds = {end: memoryview(data) for end, data in feeds.items()}
        self.parts = {name: io.BytesIO() for name in outputs.values()}
        self.cut: set[str] = set()
        self.selector = selectors.DefaultSelector()
        self.moved = 0
        """The number of bytes that the last `_move` read."""

    def pump(self, pid: int, deadline: float, watchdog: Watchdog | None, unwanted: Callable[[], bool]) -> _TrafficEnd:
        """Move bytes until the program has ended and its pipes are empty, or a limit is reached. Return the reason.

        Raises `Abandoned` if the result is `unwanted`.
        """
        with self.selector:
            for end in (*self.outputs, *self.feeds):
                os.set_blocking(end, False)
                with contextlib.suppress(OSError):  # a larger pipe means fewer switches between writer and reader
                    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _CHUNK)
                self.selector.register(end, selectors.EVENT_READ if end in self.outputs else selectors.EVENT_WRITE)
            watch = os.pidfd_open(pid)
            self.selector.register(watch, selectors.EVENT_READ)
            try:
                while True:
                    if unwanted():
                        raise Abandoned
                    due = LOOK if watchdog is None else watchdog.due
                    ready = self.selector.select(max(0.0, min(due, deadline - time.monotonic())))
                    ended = any(key.fd == watch for key, _ in ready)
                    self._move(ready)
                    if ended:
                        self._drain()
                    if self.flooded:
                        return _TrafficEnd.FLOODED
                    if ended:
                        return _TrafficEnd.SILENT if watchdog is not None and watchdog.asked else _TrafficEnd.ENDED
                    if watchdog is not None and watchdog.end(heard=self._wrote_words(ready)):
                        slow = _TrafficEnd.SLOW if watchdog.too_slow else _TrafficEnd.SILENT
                        return _TrafficEnd.LARGE if watchdog.too_large else slow
                    if time.monotonic() >= deadline:
                        return _TrafficEnd.LATE
                    if ready and self.moved < _MUCH:
                        time.sleep(_BREATH)
            finally:
                os.close(watch)

    def _move(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Move one piece of data for each descriptor that is ready."""
        self.moved = 0
        for key, _ in ready:
            if key.fd in self.feeds:
                self._feed(key.fd)
            elif key.fd in self.outputs:
                self._take(key.fd)

    def _wrote_words(self, ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Whether there is output on channel 0, to which a working program writes again and again."""
        return any(self.outputs.get(key.fd) == "channel 0" for key, _ in ready)

    @property
    def flooded(self) -> bool:
        """Whether a channel got more bytes than its limit. Such bytes of stdout and stderr are only discarded."""
        return any(name.startswith("channel") for name in self.cut)

    def taken(self, name: str) -> bytes:
        """Return everything that was stored of this output. Call it only once: the data may be large, and is freed."""
        return self.parts.pop(name).getvalue()  # makes no copy if there is no other reference

    def _drain(self) -> None:
        """Read what is left in the pipes, without a delay if a grandchild keeps them open."""
        for end in list(self.outputs):
            while not self.flooded and self._take(end):
                pass

    def _take(self, end: int) -> bool:
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
        self.parts[name].write(part)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended. `exit_code` is None if a signal ended the program."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    """Whether the program was ended because it was late or inactive."""
    cpu_seconds: float
    own_seconds: float = 0.0
    """The seconds that the program computed and, if a watchdog observed it, the seconds that it slept."""
    wall_seconds: float = 0.0
    silent: bool = False
    """Whether the program was ended because it was inactive for too long."""
    slow: bool = False
    """Whether the program was ended because it used more of its own time in total than allowed."""
    large: bool = False
    """Whether the program was ended because it used more memory, or more processes, than any program needs."""
    flooded: bool = False
    """Whether the program was ended because it wrote more to an extra pipe than allowed."""
    stdout: bytes = b""
    stderr: bytes = b""
    channels: tuple[bytes, ...] = ()
    """What was read from each of the extra pipes, in their order."""
    cut: frozenset[str] = field(default_factory=frozenset)
    """The outputs that were longer than allowed: "stdout", "stderr", "channel 0", ..."""

    @property
    def succeeded(self) -> bool:
        """Whether the program ended by itself with exit code 0."""
        return self.exit_code == 0


Command = Callable[[Sequence[int]], Sequence[str]]
"""Makes the argument list from the program's descriptor numbers: first the ends to read, then the ends to write."""


def run(
    command: Sequence[str] | Command,
    *,
    cwd: Path,
    limits: Patience,
    environment: Mapping[str, str],
    feeds: Sequence[bytes] = (),
    channels: int = 0,
    most_output: int = 1 << 20,
    most_channel: int = MOST_CHANNEL,
    becomes: int | None = None,
    wrapped: bool = False,
) -> Completed:
    """Run a program to its end, or to its time limit, in a process group of its own that is killed afterwards.

    Each of `feeds` is written to the program through a pipe. `channels` is the number of extra pipes that are read in
    addition to stdout and stderr. A `command` that needs the pipes' descriptor numbers is a function of them.
    Output beyond `most_output` bytes is read and discarded. A program that writes more than `most_channel` bytes to an
    extra pipe is ended. `becomes` is the id of the user that the program changes to; all processes of this user are
    killed too. `wrapped`: the program is a child of the started process. Raises `Abandoned` if `limits.unwanted`.
    """
    with _machine_trouble(), _Pipes() as pipes:
        read_ends, feed_ends = pipes.make(len(feeds))
        channel_ends, write_ends = pipes.make(channels)
        theirs = [*read_ends, *write_ends]
        arguments = command(theirs) if callable(command) else command
        started = time.monotonic()
        with delayed_interrupts():  # until the program has a process id, so that it can be ended
            process, family = _start(arguments, cwd=cwd, environment=environment, pass_fds=theirs, user=becomes)
        try:
            for end in theirs:
                pipes.close(end)
            room = {"stdout": most_output, "stderr": most_output, "channel": most_channel}
            traffic = _Traffic(_outputs(process, channel_ends), room, dict(zip(feed_ends, feeds, strict=True)), pipes)
            watched = limits.silent_seconds is not None
            watchdog = Watchdog(process.pid, family.members, limits, wrapped=wrapped) if watched else None
            stopped = traffic.pump(process.pid, started + limits.wall_seconds, watchdog, limits.unwanted)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status, computed = _reap(process)
            computed += family.end_leftovers()  # the kernel omits processes that were killed with their namespace
            computed = max(computed, 0.0 if watchdog is None else watchdog.cpu)
    return Completed(
        exit_code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        timed_out=stopped in (_TrafficEnd.LATE, _TrafficEnd.SILENT),
        silent=stopped is _TrafficEnd.SILENT,
        slow=stopped is _TrafficEnd.SLOW,
        large=stopped is _TrafficEnd.LARGE,
        flooded=stopped is _TrafficEnd.FLOODED,
        cpu_seconds=computed,
        own_seconds=max(computed, watchdog.whole if watchdog is not None else 0.0),
        wall_seconds=time.monotonic() - started,
        stdout=traffic.taken("stdout"),
        stderr=traffic.taken("stderr"),
        channels=tuple(traffic.taken(f"channel {i}") for i in range(channels)),
        cut=frozenset(traffic.cut),
    )


@contextlib.contextmanager
def _machine_trouble() -> Iterator[None]:
    """Raise `OutOfRoom` for an `OSError`.

    The system refused descriptors, processes or memory, which says nothing about a program.
    """
    try:
        yield
    except OSError as error:
        raise OutOfRoom(
            f"programs cannot be run here: {error.strerror or error}. The machine, or a limit of this "
            "shell (ulimit -a), leaves too little"
        ) from error


def _start(
    arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], pass_fds: Sequence[int], user: int | None
) -> tuple[subprocess.Popen[bytes], Family]:
    """Start a program in a session of its own; it inherits only these descriptors from the grader."""
    adopt_orphans()
    children: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        child = subprocess.Popen(
            list(arguments),
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        children.append(child)
        return child.pid

    for pause in _PAUSES:
        try:
            family = Family(start, user)
            return children[0], family
        except BlockingIOError as error:  # no process is free, but one may soon be
            if pause is None:
                raise CannotStart(f"{arguments[0]} cannot be started: {error.strerror} (ulimit -u)") from error
            time.sleep(pause)
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotStart(noexec(cwd / arguments[0]) or f"{arguments[0]} cannot be started: {error}") from error
    raise AssertionError


def _outputs(process: subprocess.Popen[bytes], channel_ends: Sequence[int]) -> dict[int, str]:
    """Return the names of a program's outputs by descriptor."""
    assert process.stdout is not None
    assert process.stderr is not None
    plain = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    return plain | {end: f"channel {i}" for i, end in enumerate(channel_ends)}


def _reap(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for the killed or ended program without `Popen`, and return its status and its CPU seconds."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    return status, usage.ru_utime + usage.ru_stime
