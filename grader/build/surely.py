"""Compile and link one file, and know whose fault it is when that fails: the file's own, or this machine's.

A failure is the file's own when it comes again, and an innocent file of its size is built in between (innocent.py).
What fails once only is passed over; the rest is raised, so that nobody is graded by it.

    gcc ended by itself   it is asked again with its output thrown away: no disk can be to blame for what it says then.
                          When it has nothing to say against the file, the output is to blame: it is larger than gcc
                          may write here, or there is no room, which an innocent file of that size shows.
    gcc was ended         by the CPU time that it may use, or a limit that a signal tells of: the file's own. By
                          somebody else, such as a kernel without memory, or late although it did not compute: ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grader import room, tools
from grader.build import diagnostics
from grader.build.elf import Elf
from grader.build.foreign import TELL, foreign_files
from grader.build.innocent import innocent_program
from grader.build.link import Linked, link
from grader.build.project import CProject
from grader.errors import OutOfRoom, TooBusy
from grader.process import Completed
from grader.sandbox import COMPILE_LIMITS, Workspace

__all__ = ["Compiled", "compile_surely", "link_surely"]

_MOST_FOREIGN = 20
_ALL = 0.9  # of its CPU time: the kernel counts by ticks
_LARGE = 48 << 20
"""Bytes of an object that fits into what gcc may write, and whose programs need more room than any object does."""
_SIGNALLED = re.compile(rb"^gcc: fatal error: (.+?) signal terminated program ", re.MULTILINE)
"""gcc's exit code does not tell that a signal ended its compiler."""
_KILLED = re.compile(rb"^collect2: fatal error: ld terminated with signal (7|9) ", re.MULTILINE)
"""By SIGBUS or SIGKILL; of its CPU time ld never needs all."""
_TOO_LARGE = b"File size limit exceeded"
_NOBODY = (b"Killed", b"Bus error", b"Terminated", b"Hangup")
"""Signals that no file can send to its compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What gcc made of a file, or what it has against it."""

    done: Completed
    data: bytes = b""
    elf: Elf | None = None
    """What is in it; None when there is no object."""
    foreign: tuple[str, ...] = ()
    """Files of others that it took in."""
    again: Completed | None = None
    """The second try, with machine-readable messages."""
    stopped: bool = False
    """Did it need more than it may use?"""
    too_large: bool = False
    """Is that what it writes?"""
    cpu_seconds: float = 0.0


def compile_surely(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Compile the file. Raises `GraderError` when it cannot be told what is wrong with it."""
    kills = room.memory_kills()
    limit = work.budget.cpu_limit(COMPILE_LIMITS.cpu_seconds)
    first = _compiled(project, work, source, command)
    if first.elf is not None and not first.foreign:
        return first
    innocent_program(project, work)
    if first.elf is not None:
        return first
    if first.done.timed_out:
        raise TooBusy(f"gcc did not come to its end in time, although it computed for {first.cpu_seconds:.1f} s only")
    if first.cpu_seconds >= _ALL * limit:
        return replace(first, stopped=True)
    by = _SIGNALLED.search(first.done.stderr)
    if by is not None and by[1] == _TOO_LARGE:
        innocent_program(project, work, _LARGE)
        return replace(first, stopped=True, too_large=True)
    _add(project, work, source)
    option = diagnostics.diagnostics_option(tools.gcc_major())
    again = work.run([*command[: command.index("-o")], "-pipe", "-o", "/dev/null", option], limits=COMPILE_LIMITS)
    spent = first.cpu_seconds + again.cpu_seconds
    if again.succeeded:
        return replace(_written(project, work, source, command), cpu_seconds=spent)
    by = _SIGNALLED.search(again.stderr)
    if again.timed_out or again.signal is not None or (by is not None and by[1] in _NOBODY):
        if again.cpu_seconds < _ALL * limit:
            raise OutOfRoom("gcc was ended while it compiled, and not by a limit of its own: is there memory enough?")
        return replace(first, again=again, stopped=True, cpu_seconds=spent)
    if room.memory_kills() > kills:
        raise OutOfRoom("the kernel ended processes of this machine for want of memory, perhaps gcc's")
    return replace(first, again=again, stopped=by is not None, cpu_seconds=spent)


def link_surely(project: CProject, work: Workspace, compiled: Compiled, missing: Sequence[str]) -> Linked:
    """Link what was compiled. Raises `GraderError` when nothing as large as it is linked here."""
    data, elf = compiled.data, compiled.elf
    assert elf is not None
    kills = room.memory_kills()
    first = link(project, work, data, elf, missing=missing)
    if not first.step:
        return first
    innocent_program(project, work, len(data))
    again = link(project, work, data, elf, missing=missing)
    spent = first.cpu_seconds + again.cpu_seconds
    if again.done.timed_out:
        raise TooBusy(f"{again.step} did not come to its end in time")
    if again.step and (room.memory_kills() > kills or _KILLED.search(again.done.stderr)):
        raise OutOfRoom(f"{again.step} was ended while it worked: is there memory enough?")
    return replace(again, cpu_seconds=spent)


def _compiled(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """One try."""
    _add(project, work, source)
    done = work.run([*command, *TELL], limits=COMPILE_LIMITS)
    data = work.read(project.object_name) if done.succeeded else b""
    return Compiled(
        done=done,
        data=data,
        elf=Elf.read(data),
        foreign=tuple(foreign_files(work)[:_MOST_FOREIGN]),
        cpu_seconds=done.cpu_seconds,
    )


def _add(project: CProject, work: Workspace, source: bytes) -> None:
    work.add(project.source_name, source)
    work.add(project.header.name, project.header.read_bytes())


def _written(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """gcc has nothing against the file: now it is written, or too large for that, or there is no room."""
    once_more = _compiled(project, work, source, command)
    if once_more.elf is None:
        innocent_program(project, work, _LARGE)
        return replace(once_more, too_large=True)
    return once_more
