"""Compile and link one file, and determine whether a failure is the file's own or this machine's.

A failure is the file's own when it occurs again, and a known-good file of its size is built in between (known_good.py).
A failure that occurs only once is ignored. Any other failure is raised, so that no submission is graded by it.

    gcc ended by itself   its compiler is run again with its output discarded: no disk can cause what it reports then.
                          When it reports no error, the assembler does, or the output is the cause: it is larger than
                          gcc may write here, or there is no room, which a known-good file of that size shows.
    gcc was ended         by a limit on what it computes, writes or has in memory: the file's own failure. The same
                          holds when it sleeps for too long each time. By another process or the operating system, such
                          as a kernel without memory: the machine's failure.

How compiler and assembler ended is read from their exit statuses, never from what is printed: the file can influence
that.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grader.core.errors import OutOfRoom, TooBusy
from grader.runtime.native.compile import diagnostics
from grader.runtime.native.compile.elf import Elf
from grader.runtime.native.compile.known_good import known_good_program
from grader.runtime.native.compile.link import Linked, link, most_seconds
from grader.runtime.native.compile.outside_files import TELL, outside_files
from grader.runtime.native.compile.project import CProject
from grader.runtime.native.needed_tools import gcc_major
from grader.system import resources
from grader.system.process import Completed
from grader.system.sandbox import COMPILE_LIMITS, Workspace

_MOST_FOREIGN = 20
_LARGE = 48 << 20
"""The size of an object, in bytes, that gcc may still write, and whose programs need more room than any object."""
_STATUSES = "statuses"
_TELL_STATUSES = ("-wrapper", f'sh,-c,"$0" "$@"; status=$?; echo $status >>{_STATUSES}; exit $status')
"""Options that record the statuses of compiler and assembler: gcc's own does not show whether a signal ended them."""
_BY_SIGNAL = 128
"""What the shell adds to the signal's number in the exit status."""
_NOBODY = frozenset({signal.SIGKILL, signal.SIGBUS, signal.SIGTERM, signal.SIGHUP})
"""Signals that a submission's file cannot cause in its compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What gcc made of a file, or how it failed."""

    done: Completed
    data: bytes = b""
    elf: Elf | None = None
    """The parsed object; None when there is none."""
    foreign: tuple[str, ...] = ()
    """Files from outside that were read (outside_files.py)."""
    again: Completed | None = None
    """The second run, with machine-readable messages."""
    stopped: bool = False
    """Whether gcc needed more than it may use."""
    too_large: bool = False
    """Whether the output is larger than gcc may write."""
    cpu_seconds: float = 0.0


def compile_file(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Compile the file.

    Raises `GraderError` when it cannot be determined what is wrong with the file.
    """
    kills = resources.memory_kills()
    most = most_seconds(work, COMPILE_LIMITS)
    first = _compiled(project, work, source, command)
    if first.elf is not None and not first.foreign:
        return first
    known_good_program(project, work)
    if first.elf is not None:
        return first
    if first.done.timed_out:
        raise TooBusy(f"gcc did not come to its end in time, although it computed for {first.cpu_seconds:.1f} s only")
    if first.done.large or first.cpu_seconds >= most:
        return replace(first, stopped=True)
    _add(project, work, source)
    most = most_seconds(work, COMPILE_LIMITS)
    nowhere = [*command[: command.index("-o")], "-o", "/dev/null"]
    again, statuses = _run_with_statuses(work, [*nowhere, "-S", *diagnostics.diagnostics_options(gcc_major())])
    compiled = replace(first, again=again, cpu_seconds=first.cpu_seconds + again.cpu_seconds)
    if again.succeeded:  # the assembler rejects the file, or the output is the cause
        most = most_seconds(work, COMPILE_LIMITS)
        done, statuses = _run_with_statuses(work, nowhere)
        compiled = replace(compiled, done=done, cpu_seconds=compiled.cpu_seconds + done.cpu_seconds)
        if done.succeeded or (len(statuses) == 1 and not done.slow and not done.large):
            once_more = _written(project, work, source, command)
            return replace(once_more, again=again, cpu_seconds=compiled.cpu_seconds + once_more.cpu_seconds)
        again = done
    stopped = _is_stopped(again, statuses, most)
    if resources.memory_kills() > kills:
        raise OutOfRoom("the kernel ended processes of this machine for want of memory, perhaps gcc's")
    return replace(compiled, stopped=stopped)


def _run_with_statuses(work: Workspace, command: Sequence[str]) -> tuple[Completed, list[int]]:
    """Run gcc; return how it ended, and the exit statuses of its compiler and then its assembler."""
    (work.folder / _STATUSES).unlink(missing_ok=True)
    done = work.run([*command, *_TELL_STATUSES], limits=COMPILE_LIMITS)
    return done, [int(word) for word in work.read(_STATUSES).split() if word.isdigit()]


def _is_stopped(done: Completed, statuses: Sequence[int], most: float) -> bool:
    """Whether gcc failed because it was stopped, not because of an error that it reports.

    Raises `GraderError` when the file is not the cause.
    """
    if done.timed_out:
        raise TooBusy(f"gcc did not come to its end in time, although it computed for {done.cpu_seconds:.1f} s only")
    if done.slow or done.large:
        return True
    if not any(statuses) or any(status - _BY_SIGNAL in _NOBODY for status in statuses):
        if done.cpu_seconds < most:
            raise OutOfRoom("gcc was ended while it compiled, and not by a limit of its own: is there memory enough?")
        return True
    return any(status > _BY_SIGNAL for status in statuses)


def link_file(project: CProject, work: Workspace, compiled: Compiled, missing: Sequence[str]) -> Linked:
    """Link the object.

    Raises `GraderError` when no object of its size can be linked here, or when the system ended the tool.
    """
    data, elf = compiled.data, compiled.elf
    assert elf is not None
    kills = resources.memory_kills()
    first = link(project, work, data, elf, missing=missing)
    if not first.step:
        return first
    known_good_program(project, work, min(len(data), _LARGE))
    if first.exhausted:
        return first
    again = link(project, work, data, elf, missing=missing)
    spent = first.cpu_seconds + again.cpu_seconds
    if again.done.timed_out:
        raise TooBusy(f"{again.step} did not come to its end in time")
    ended = again.done.signal in _NOBODY and not again.exhausted
    if again.step and (resources.memory_kills() > kills or ended):
        raise OutOfRoom(f"{again.step} was ended while it worked: is there memory enough?")
    return replace(again, cpu_seconds=spent)


def _compiled(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Run the compile command once and read what it wrote."""
    _add(project, work, source)
    done = work.run([*command, *TELL], limits=COMPILE_LIMITS)
    data = work.read(project.object_name) if done.succeeded else b""
    return Compiled(
        done=done,
        data=data,
        elf=Elf.read(data),
        foreign=tuple(outside_files(work)[:_MOST_FOREIGN]),
        cpu_seconds=done.cpu_seconds,
    )


def _add(project: CProject, work: Workspace, source: bytes) -> None:
    work.add(project.source_name, source)
    work.add(project.header.name, project.header.read_bytes())


def _written(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Compile a file once more in which gcc reports no error.

    The object is written, or it is too large for that, or there is no room: then this raises `GraderError`.
    """
    once_more = _compiled(project, work, source, command)
    if once_more.elf is None:
        known_good_program(project, work, _LARGE)
        stopped = once_more.done.slow or once_more.done.large
        return replace(once_more, stopped=stopped, too_large=not stopped)
    return once_more
