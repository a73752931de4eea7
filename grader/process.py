"""The only door to other programs: argument lists, limits, bounded output, and an end for every one of them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from grader.reaper import adopt_orphans, end_leftovers

__all__ = ["Completed", "Limits", "run"]

_CHUNK = 1 << 20
_BREATH = 0.002
"""Seconds to wait between two looks at a program's output: one look at much costs less than many at little."""
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may use; None: as much as we may."""

    wall_seconds: float = 60.0
    cpu_seconds: int | None = None
    address_space: int | None = None
    file_size: int | None = None
    processes: int | None = None
    open_files: int | None = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended. `exit_code` is None when a signal ended it."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    cpu_seconds: float
    stdout: bytes = b""
    stderr: bytes = b""
    channels: tuple[bytes, ...] = ()
    """What came through each of the extra pipes, in the order asked for."""
    cut: frozenset[str] = field(default_factory=frozenset)
    """Which outputs were longer than allowed: "stdout", "stderr", "channel 0", ..."""

    @property
    def succeeded(self) -> bool:
        """Did it end by itself with exit code 0?"""
        return self.exit_code == 0


Command = Callable[[Sequence[int]], Sequence[str]]
"""Makes the argument list from the descriptor numbers: first those to read from, then those to write to."""


def run(
    command: Sequence[str] | Command,
    *,
    cwd: Path,
    limits: Limits,
    environment: Mapping[str, str],
    user: int | None = None,
    feeds: Sequence[bytes] = (),
    channels: int = 0,
    most_output: int = 1 << 20,
    most_channel: int = 1 << 30,
) -> Completed:
    """Run a program to its end, or to the end of its time, in a process group of its own that is killed afterwards.

    `feeds` are given to it through pipes, `channels` more pipes are read from it beside stdout and stderr; a
    `command` that needs the descriptor numbers is a function of them. `user` is a numeric user and group id.
    Output beyond `most_output` (`most_channel` for the extra pipes) bytes is read and thrown away.
    """
    with _Pipes() as pipes:
        read_ends, feed_ends = pipes.make(len(feeds))
        channel_ends, write_ends = pipes.make(channels)
        theirs = [*read_ends, *write_ends]
        arguments = command(theirs) if callable(command) else command
        started = time.monotonic()
        adopt_orphans()
        mark = f"GRADE_RUN={secrets.token_hex(8)}"
        process = subprocess.Popen(
            list(arguments),
            cwd=cwd,
            env={**environment, **dict([mark.split("=")])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=theirs,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user is not None else None,
            preexec_fn=_limiter(limits),  # noqa: PLW1509 - one thread per process here, and it only sets limits
        )
        try:
            for end in theirs:
                pipes.close(end)
            room = {"stdout": most_output, "stderr": most_output, "channel": most_channel}
            traffic = _Traffic(_outputs(process, channel_ends), room, dict(zip(feed_ends, feeds, strict=True)), pipes)
            timed_out = not traffic.pump(process, started + limits.wall_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status, usage = _reap(process)
            end_leftovers(process.pid, user, mark)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    return Completed(
        exit_code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        timed_out=timed_out,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        stdout=traffic.taken("stdout"),
        stderr=traffic.taken("stderr"),
        channels=tuple(traffic.taken(f"channel {i}") for i in range(channels)),
        cut=frozenset(traffic.cut),
    )


def _outputs(process: subprocess.Popen[bytes], channel_ends: Sequence[int]) -> dict[int, str]:
    """What is read from a program, by descriptor."""
    assert process.stdout is not None
    assert process.stderr is not None
    plain = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    return plain | {end: f"channel {i}" for i, end in enumerate(channel_ends)}


class _Traffic:
    """Moves bytes between us and a running program, so that neither waits for the other for ever."""

    def __init__(self, outputs: dict[int, str], room: dict[str, int], feeds: dict[int, bytes], pipes: _Pipes) -> None:
        self.outputs = outputs
        self.pipes = pipes
        self.room = {name: room[name.split()[0]] for name in outputs.values()}
        self.feeds = {end: memoryview(data) for end, data in feeds.items()}
        self.parts: dict[str, list[bytes]] = {name: [] for name in outputs.values()}
        self.cut: set[str] = set()
        self.selector = selectors.DefaultSelector()

    def pump(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Work until the program has ended and its pipes are empty. False: the deadline came first."""
        with self.selector:
            for end in self.outputs:
                os.set_blocking(end, False)
                self.selector.register(end, selectors.EVENT_READ)
            for end in self.feeds:
                os.set_blocking(end, False)
                self.selector.register(end, selectors.EVENT_WRITE)
            watch = os.pidfd_open(process.pid)
            self.selector.register(watch, selectors.EVENT_READ)
            try:
                while True:
                    ready = self.selector.select(max(0.0, deadline - time.monotonic()))
                    if not ready:
                        return False
                    ended = any(key.fd == watch for key, _ in ready)
                    for key, _ in ready:
                        if key.fd in self.feeds:
                            self._feed(key.fd)
                        elif key.fd in self.outputs:
                            self._take(key.fd)
                    if ended:
                        self._drain()
                        return True
                    time.sleep(_BREATH)
            finally:
                os.close(watch)

    def taken(self, name: str) -> bytes:
        return b"".join(self.parts[name])

    def _drain(self) -> None:
        """What is left in the pipes; a grandchild that keeps them open delays nothing."""
        for end in list(self.outputs):
            while self._take(end):
                pass

    def _take(self, end: int) -> bool:
        if end not in self.outputs:
            return False
        try:
            data = os.read(end, _CHUNK)
        except BlockingIOError:
            return False
        name = self.outputs[end]
        if not data:
            self.selector.unregister(end)
            del self.outputs[end]
            return False
        kept = data[: self.room[name]]
        self.room[name] -= len(kept)
        if len(kept) < len(data):
            self.cut.add(name)
        self.parts[name].append(kept)
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


class _Pipes:
    """Pipes whose ends are each closed exactly once: a closed number soon belongs to somebody else."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in list(self._open):
            self.close(end)

    def make(self, count: int) -> tuple[list[int], list[int]]:
        """`count` pipes, as (ends to read, ends to write)."""
        pairs = [os.pipe() for _ in range(count)]
        for pair in pairs:
            self._open.update(pair)
            with contextlib.suppress(OSError):  # a hint: fewer switches between writer and reader
                fcntl.fcntl(pair[1], fcntl.F_SETPIPE_SZ, _CHUNK)
        return [reader for reader, _ in pairs], [writer for _, writer in pairs]

    def close(self, end: int) -> None:
        if end in self._open:
            self._open.remove(end)
            os.close(end)


def _limiter(limits: Limits) -> Callable[[], None]:
    """What the child does between fork and exec: set its limits and give up gaining rights."""
    wanted = list(_limit_pairs(limits))

    def limit() -> None:
        for which, value in wanted:
            _, hard = resource.getrlimit(which)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (most, most))
        _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    return limit


def _limit_pairs(limits: Limits) -> Iterator[tuple[int, int]]:
    yield resource.RLIMIT_CORE, 0
    chosen = {
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_AS: limits.address_space,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    yield from ((which, value) for which, value in chosen.items() if value is not None)


def _reap(process: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    """Wait for the killed or ended program ourselves, to get its CPU time."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return status, usage
