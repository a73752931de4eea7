"""The only door to other programs: argument lists, limits, bounded output, and an end for every one of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.errors import CannotStart
from grader.reaper import adopt_orphans, end_leftovers
from grader.silence import Silence
from grader.traffic import Pipes, Stopped, Traffic

__all__ = ["Completed", "Limits", "run"]

_MARK = "GRADE_RUN"
"""The variable by which a program's children are known, wherever they go."""
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
    silent_seconds: float | None = None
    """Between two words on its first channel, in its own time (see grader.silence)."""
    silent_start_seconds: float = 0.0
    """Before the first word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended. `exit_code` is None when a signal ended it."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    """Was it ended, because it was late or silent?"""
    cpu_seconds: float
    wall_seconds: float = 0.0
    silent: bool = False
    """Did it say nothing for too long?"""
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
    with Pipes() as pipes:
        read_ends, feed_ends = pipes.make(len(feeds))
        channel_ends, write_ends = pipes.make(channels)
        theirs = [*read_ends, *write_ends]
        arguments = command(theirs) if callable(command) else command
        started = time.monotonic()
        mark = secrets.token_hex(8)
        with _no_interrupt() as let_in:
            process = _start(
                arguments,
                cwd=cwd,
                environment={**environment, _MARK: mark},
                pass_fds=theirs,
                user=user,
                prepare=_preparation(limits, let_in),
            )
        try:
            for end in theirs:
                pipes.close(end)
            room = {"stdout": most_output, "stderr": most_output, "channel": most_channel}
            traffic = Traffic(_outputs(process, channel_ends), room, dict(zip(feed_ends, feeds, strict=True)), pipes)
            stopped = traffic.pump(process.pid, started + limits.wall_seconds, _silence(process.pid, limits))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status, usage = _reap(process)
            end_leftovers(process.pid, user, f"{_MARK}={mark}")
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    return Completed(
        exit_code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        timed_out=stopped is not Stopped.ENDED,
        silent=stopped is Stopped.SILENT,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        wall_seconds=time.monotonic() - started,
        stdout=traffic.taken("stdout"),
        stderr=traffic.taken("stderr"),
        channels=tuple(traffic.taken(f"channel {i}") for i in range(channels)),
        cut=frozenset(traffic.cut),
    )


def _silence(pid: int, limits: Limits) -> Silence | None:
    if limits.silent_seconds is None:
        return None
    return Silence(pid, most=limits.silent_seconds, at_start=limits.silent_start_seconds)


def _start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: dict[str, str],
    pass_fds: Sequence[int],
    user: int | None,
    prepare: Callable[[], None],
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with nothing of ours but these descriptors."""
    adopt_orphans()
    try:
        return subprocess.Popen(
            list(arguments),
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user is not None else None,
            preexec_fn=prepare,  # noqa: PLW1509 - it only sets limits
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotStart(f"{arguments[0]} cannot be started: {error}") from error


@contextlib.contextmanager
def _no_interrupt() -> Iterator[set[int]]:
    """Ctrl-C waits until a program that is being started has a number, so that it can be ended.

    Gives the signals that the program itself has to let in again.
    """
    held: set[int] = {signal.SIGINT, signal.SIGTERM}
    before: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, held))
    try:
        yield held - before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outputs(process: subprocess.Popen[bytes], channel_ends: Sequence[int]) -> dict[int, str]:
    """What is read from a program, by descriptor."""
    assert process.stdout is not None
    assert process.stderr is not None
    plain = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    return plain | {end: f"channel {i}" for i, end in enumerate(channel_ends)}


def _preparation(limits: Limits, let_in: set[int]) -> Callable[[], None]:
    """What the child does between fork and exec: set its limits and give up gaining rights."""
    wanted = list(_limit_pairs(limits))

    def prepare() -> None:
        for which, value in wanted:
            _, hard = resource.getrlimit(which)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (most, most))
        _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, let_in)

    return prepare


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
