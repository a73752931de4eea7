"""Compile and link one file, and determine whether a failure is the file's own or this machine's.

A failure is the file's own when it occurs again, and a known-good file of its size is built in between. A failure that
occurs only once is ignored. Any other failure is raised, so that no submission is graded by it.

    gcc ended by itself   its compiler is run again with its output discarded: no disk can cause what it reports then.
                          When it reports no error, the assembler does, or the output is the cause: it is larger than
                          gcc may write here, or there is no room, which a known-good file of that size shows.
    gcc was ended         by a limit on what it computes, writes or has in memory: the file's own failure. The same
                          holds when it sleeps for too long each time. By another process or the operating system, such
                          as a kernel without memory: the machine's failure.
    gcc crashed           by a signal of its own, or an internal compiler error: the file's own failure, called that.

How compiler and assembler ended is read from their exit statuses, never from what is printed: the file can influence
that.

The known-good file is built anew whenever a tool failed, never taken from a cache. It is built in the same folder, by
the same user, under the same protection, and is as large as the file that failed. So a full disk, a missing tool and a
limit that is too low are recognised as such. Whether a limit of time is too low, the caller finds out
(`grader.runtime.runs.has_become_slower`).

gcc and the assembler can read files from outside (`#include`, `.incbin`, `#embed`) that are neither the submission's
nor the system's: where no protection prevents it, whatever the user can read. A program with such a file in it is not
run.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from grader.core.errors import BrokenTool, OutOfRoom, TooBusy
from grader.core.verdict import Tool
from grader.runtime.native.compile import diagnostics
from grader.runtime.native.compile.link import Linked, link, most_seconds
from grader.runtime.native.project import CProject, NativeProgram
from grader.runtime.native.scan.elf import Bind, Elf, SymbolType
from grader.runtime.native.scan.expected import start
from grader.system import process, resources
from grader.system.process import Completed, Patience
from grader.system.resources import NeededTool
from grader.system.sandbox import COMPILE_LIMITS, Workspace

GCC = NeededTool(
    name="gcc",
    packages="gcc libc6-dev",
    purpose="compiles the submission with the handout's flags",
    makes=Tool.BUILD,
)
OBJCOPY = NeededTool(
    name="objcopy", packages="binutils", purpose="keeps the submission's names apart from the grader's"
)

_MOST_FOREIGN = 20
_LARGE = 48 << 20
"""The size of an object, in bytes, that gcc may still write, and whose programs need more room than any object."""
_STATUSES = "statuses"
_TELL_STATUSES = ("-wrapper", f'sh,-c,"$0" "$@"; status=$?; echo $status >>{_STATUSES}; exit $status')
"""Options that record the statuses of compiler and assembler: gcc's own does not show whether a signal ended them."""
_BY_SIGNAL = 128
"""What the shell adds to the signal's number in the exit status."""
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_CRASHED = frozenset({4, *(_BY_SIGNAL + number for number in _CRASHES)})
"""Statuses of a compiler or assembler that crashed; 4 is that of gcc's message "internal compiler error"."""
_NOBODY = frozenset({signal.SIGKILL, signal.SIGBUS, signal.SIGTERM, signal.SIGHUP})
"""Signals that a submission's file cannot cause in its compiler."""
_MOST_BYTES = 256 << 10
"""The size limit of a list: each path in it costs a look-up of each of its parts. All headers of the system: 30 KB."""
_LISTS = ("included.d", "assembled.d")
_TELL = ("-MD", "-MF", _LISTS[0], f"-Wa,--MD,{_LISTS[1]}")
"""Options of gcc that make gcc and the assembler list the files that they read."""

_LISTED_NAME = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)

_NAME = re.compile(r"[A-Za-z_]\w{0,200}", re.ASCII)

_HEADERS = ("assert", "errno", "limits", "math", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string")
_USE = """
void *known_good(size_t size);
void *known_good(size_t size)
{
    char *memory = calloc(size, 2);
    if (memory == NULL || strlen(memory) > size)
        printf("%zu\\n", size);
    free(memory);
    return malloc(size);
}
"""
"""C code that calls what many submissions call of libc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What gcc made of a file, or how it failed."""

    done: Completed
    elf: Elf | None = None
    """The object; None when there is none."""
    foreign: tuple[str, ...] = ()
    """Files from outside that were read."""
    again: Completed | None = None
    """The second run, with machine-readable messages."""
    stopped: bool = False
    """Whether gcc needed more than it may use."""
    crashed: bool = False
    """Whether gcc or the assembler crashed, by a mistake of its own that the file brings to light."""
    too_large: bool = False
    """Whether the output is larger than gcc may write."""
    cpu_seconds: float = 0.0


def compile_file(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Compile the file.

    Raises `GraderError` when it cannot be determined what is wrong with the file.
    """
    kills = resources.memory_kills()
    most = most_seconds(work, COMPILE_LIMITS)
    first = compile_once(project, work, source, command)
    if first.elf is not None and not first.foreign:
        return first
    if first.cpu_seconds >= most:
        return replace(first, stopped=True)
    known_good_program(project, work)
    if first.elf is not None:
        return first
    if first.done.timed_out:
        raise TooBusy(f"gcc did not come to its end in time, although it computed for {first.cpu_seconds:.1f} s only")
    if first.done.large:
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
            # the object is written, or it is too large for that, or there is no room: then this raises `GraderError`
            written = compile_once(project, work, source, command)
            written = replace(written, again=again, cpu_seconds=compiled.cpu_seconds + written.cpu_seconds)
            if written.elf is None:
                known_good_program(project, work, _LARGE)
                stopped = written.done.slow or written.done.large
                written = replace(written, stopped=stopped, too_large=not stopped)
            return written
        again = done
    stopped = _is_stopped(again, statuses, most)
    if resources.memory_kills() > kills:
        raise OutOfRoom("the kernel ended processes of this machine for want of memory, perhaps gcc's")
    return replace(compiled, stopped=stopped, crashed=not stopped and not _CRASHED.isdisjoint(statuses))


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
    return any(status > _BY_SIGNAL and status not in _CRASHED for status in statuses)


def link_file(
    project: CProject, work: Workspace, elf: Elf, missing: Sequence[str], *, only: Mapping[str, str] | None = None
) -> Linked:
    """Link the object; `only` as for `link`.

    Raises `GraderError` when no object of its size can be linked here, or when the system ended the tool.
    """
    kills = resources.memory_kills()
    first = link(project, work, elf, missing=missing, only=only)
    if not first.step:
        return first
    known_good_program(project, work, min(len(elf.data), _LARGE))
    if first.exhausted:
        return first
    again = link(project, work, elf, missing=missing, only=only)
    spent = first.cpu_seconds + again.cpu_seconds
    if again.done.timed_out:
        raise TooBusy(f"{again.step} did not come to its end in time")
    ended = again.done.signal in _NOBODY and not again.exhausted
    if again.step and (resources.memory_kills() > kills or ended):
        raise OutOfRoom(f"{again.step} was ended while it worked: is there memory enough?")
    return replace(again, cpu_seconds=spent)


def compile_once(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Run the compile command once and read what it wrote."""
    _add(project, work, source)
    done = work.run([*command, *_TELL], limits=COMPILE_LIMITS)
    elf = Elf.read(work.read(project.object_name)) if done.succeeded else None
    foreign = tuple(_outside_files(work)[:_MOST_FOREIGN])
    return Compiled(done=done, elf=elf, foreign=foreign, cpu_seconds=done.cpu_seconds)


def _add(project: CProject, work: Workspace, source: bytes) -> None:
    work.add(project.source_name, source)
    work.add(project.header.name, project.header.read_bytes())


def _outside_files(work: Workspace) -> list[str]:
    """Return the names of the files from outside that were read in a compilation with `_TELL`."""
    if any(
        path.is_file() and path.stat().st_size > _MOST_BYTES
        for path in (work.folder / list_file for list_file in _LISTS)
    ):
        return [f"a list of files of more than {_MOST_BYTES >> 10} KB"]
    home = work.folder.resolve()
    names = dict.fromkeys(name for list_file in _LISTS for name in _names(work.folder / list_file))
    paths = {name: Path(home, name).resolve() for name in names}
    return [name for name, path in paths.items() if not path.is_relative_to(home) and not work.may_be_read(path)]


def _names(path: Path) -> Iterator[str]:
    """Yield the names behind the colon of a rule for make; none where the tool wrote no list."""
    if not path.is_file() or path.is_symlink():
        return
    _, _, names = path.read_text(encoding="utf-8", errors="replace").partition(": ")
    for name in _LISTED_NAME.findall(names.replace("\\\n", " ")):
        yield re.sub(r"\\(.)", r"\1", name).replace("$$", "$")


def known_good_program(project: CProject, work: Workspace, size: int = 0) -> NativeProgram:
    """Return the program of a submission without mistakes that does nothing; its object has at least `size` bytes.

    Empties the folder before and after. Raises `GraderError` when it cannot be built: then a failure of another file
    says nothing about that file.
    """
    padding = f"char known_good_padding[{size}] = {{1}};\n" if size else ""
    headers = "".join(f"#include <{header}.h>\n" for header in _HEADERS)
    source = headers + project.stubs + padding + _USE
    with _paid(work) as place:
        place.clear()
        compiled = compile_once(project, place, source.encode(), project.compile_command)
        if compiled.done.succeeded and compiled.foreign:
            raise BrokenTool(
                f"gcc takes its own headers from {compiled.foreign[0]}, where no submission may read; put a gcc on "
                "/usr/bin or /usr/local/bin whose files lie beside it"
            )
        if compiled.elf is None:
            raise _broken("gcc", compiled.done)
        linked = link(project, place, compiled.elf)
        if linked.step:
            raise _broken(linked.step, linked.done)
        resources.check_room(place.folder)
        place.clear()
    return linked.program(project.source_name)


def known_good_start(
    project: CProject, work: Workspace, student: Elf, lanes: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return what programs of a known-good file with this object's needs of libc run besides their functions.

    By program and lane; empty when it cannot be linked in these lanes. Empties the folder.
    """
    known_good_program(project, work)
    needed = "".join(
        f".weak {symbol.name}\n.quad {symbol.name}\n" if symbol.bind == Bind.WEAK else f".quad {symbol.name}\n"
        for symbol in student.symbols()
        if not symbol.section and symbol.kind != SymbolType.TLS and _NAME.fullmatch(symbol.name)
    )
    with _paid(work) as place:
        place.add("needed.s", f".data\n{needed}".encode())
        _add(project, place, project.stubs.encode())
        for command in (
            project.compile_command,
            ("gcc", "-c", "needed.s", "-o", "needed.o"),
            ("ld", "-r", project.object_name, "needed.o", "-o", "both.o"),
        ):
            place.run(command, limits=COMPILE_LIMITS)
        elf = Elf.read(place.read("both.o"))
        linked = link(project, place, elf, only=lanes) if elf else None
        place.clear()
    return {f"{name} {lanes[name]}": start(program) for name, program in linked.programs.items()} if linked else {}


@contextlib.contextmanager
def _paid(work: Workspace) -> Iterator[Workspace]:
    """Yield the workspace with a full budget, whatever the submission used up; then charge the submission for it."""
    place = replace(work, budget=work.budget.renewed())
    whole = place.budget.wall
    try:
        yield place
    finally:
        work.budget.take(place.budget.paid, whole - place.budget.wall)


def _broken(tool: str, done: Completed) -> BrokenTool:
    if done.timed_out:
        return BrokenTool(f"{tool} does not come to an end here, not even with a known-good file")
    stderr = done.stderr.decode(errors="replace").strip()[:2000]
    return BrokenTool(f"{tool} does not even make a program of a known-good file here:\n{stderr or 'it says nothing'}")


@cache
def gcc_major() -> int:
    """Return gcc's major version, 0 when it is unknown."""
    done = process.run(
        ["gcc", "-dumpversion"],
        cwd=Path("/"),
        limits=Patience(wall_seconds=30),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    major = done.stdout.decode(errors="replace").strip().partition(".")[0]
    return int(major) if major.isdecimal() else 0
