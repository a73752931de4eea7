"""The only interface to other programs: argument lists, time limits, bounded output, and an end for every program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.core.errors import CannotStart, OutOfRoom
from grader.system.interrupts import delayed_interrupts
from grader.system.orphans import Family, adopt_orphans
from grader.system.pipes import Pipes, Stopped, Traffic
from grader.system.watchdog import Watchdog

_PAUSES = (0.05, 0.5, None)
"""Seconds between attempts to start a process; None: no further attempt."""

MOST_CHANNEL = 80_000_000
"""Bytes: nine times what any sample submission reports of half of 276 cases, unless it attacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the grader waits for a program."""

    wall_seconds: float = 60.0
    silent_seconds: float | None = None
    """Between two outputs on its first channel, in its own time (see grader.system.watchdog). None: no limit."""
    silent_start_seconds: float = 0.0
    """Before the first output."""
    own_seconds: float | None = None
    """In total, in its own time. It is checked only with `silent_seconds`, and so is the program's memory."""
    blocked_counts: bool = False
    """Whether `own_seconds` include the time in which the kernel makes it wait, as for a disk (state D). A compiler
    reads files and may wait for a slow disk. A student's program needs no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended. `exit_code` is None when a signal ended it."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    """Whether it was ended because it was late or inactive."""
    cpu_seconds: float
    own_seconds: float = 0.0
    """The time that it computed, and, where a watchdog observed it, the time that it slept."""
    wall_seconds: float = 0.0
    silent: bool = False
    """Whether it was inactive for too long."""
    slow: bool = False
    """Whether it was ended because it used more of its own time in total than allowed."""
    large: bool = False
    """Whether it was ended because it used more memory, or more processes, than any program needs."""
    flooded: bool = False
    """Whether it was ended because it wrote more to an extra pipe than allowed."""
    stdout: bytes = b""
    stderr: bytes = b""
    channels: tuple[bytes, ...] = ()
    """What was read from each of the extra pipes, in their order."""
    cut: frozenset[str] = field(default_factory=frozenset)
    """The outputs that were longer than allowed: "stdout", "stderr", "channel 0", ..."""

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0


Command = Callable[[Sequence[int]], Sequence[str]]
"""Makes the argument list from the program's descriptor numbers: first those to read from, then those to write to."""


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

    `feeds` are written to it through pipes, and `channels` more pipes are read besides stdout and stderr. A `command`
    that needs the descriptor numbers is a function of them.
    Output beyond `most_output` bytes is read and discarded. A program that writes more than `most_channel` bytes to an
    extra pipe is ended. `becomes` is the user that the program changes to; this user's processes are killed too.
    `wrapped`: the program is a child of the process that is started.
    """
    with _machine_trouble(), Pipes() as pipes:
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
            traffic = Traffic(_outputs(process, channel_ends), room, dict(zip(feed_ends, feeds, strict=True)), pipes)
            watchdog = _watchdog(process.pid, limits, family, wrapped=wrapped)
            stopped = traffic.pump(process.pid, started + limits.wall_seconds, watchdog)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status, computed = _reap(process)
            computed = _at_least_seen(computed + family.end_leftovers(), watchdog)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    return Completed(
        exit_code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        timed_out=stopped in (Stopped.LATE, Stopped.SILENT),
        silent=stopped is Stopped.SILENT,
        slow=stopped is Stopped.SLOW,
        large=stopped is Stopped.LARGE,
        flooded=stopped is Stopped.FLOODED,
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
            f"no program can be run and listened to here: {error.strerror or error}. The machine, or a limit of this "
            "shell (ulimit -a), leaves too little"
        ) from error


def _at_least_seen(computed: float, watchdog: Watchdog | None) -> float:
    """Return at least the CPU seconds that the watchdog saw: the kernel omits processes killed with their namespace."""
    return computed if watchdog is None else max(computed, watchdog.cpu)


def _watchdog(pid: int, limits: Patience, family: Family, *, wrapped: bool) -> Watchdog | None:
    if limits.silent_seconds is None:
        return None
    return Watchdog(
        pid,
        family.members,
        most=limits.silent_seconds,
        at_start=limits.silent_start_seconds,
        in_all=limits.own_seconds,
        blocked_counts=limits.blocked_counts,
        wrapped=wrapped,
    )


def _start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    pass_fds: Sequence[int],
    user: int | None,
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
            raise CannotStart(f"{arguments[0]} cannot be started: {error}") from error
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
    return status, usage.ru_utime + usage.ru_stime
