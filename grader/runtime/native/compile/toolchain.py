"""Compile and link one file, and determine whether a failure is the file's own or this machine's.

The student's object, the driver and the harness are linked into a program so that their names and memory stay apart.

A failure is the file's own when it occurs again, and a known-good file of its size is built in between. A failure that
occurs only once is ignored. Any other failure is raised, so that no submission is graded by it.

    gcc ended by itself   the compiler is run again with its output discarded, so that no full disk causes an error.
                          When it reports no error, the assembler does, or the output is the cause: it is larger than
                          gcc may write here, or there is no room: then a known-good file of that size fails too.
    gcc was ended         by a limit on what it computes, writes or has in memory: the file's own failure. The same
                          holds when it sleeps for too long each time. By another process or the operating system, such
                          as a kernel without memory: the machine's failure.
    gcc crashed           by a signal of its own, or an internal compiler error: the file's own failure, named a crash.

How compiler and assembler ended is read from their exit statuses, never from what they print, because the file can
influence what they print.

The known-good file is built again whenever a tool failed, never taken from a cache. It is built in the same folder, by
the same user, under the same protection, and is as large as the file that failed. So a full disk, a missing tool and a
limit that is too low are recognised as such. The caller finds out whether a limit of time is too low
(`grader.runtime.runs.has_become_slower`).

gcc and the assembler can read files from outside (`#include`, `.incbin`, `#embed`) that are neither the submission's
nor the system's. Without protection they can read whatever the user can read. A program with such a file in it is not
run.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
import secrets
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from grader.core.errors import BrokenTool, OutOfRoom, TooBusy
from grader.core.verdict import Tool
from grader.runtime.native.compile import libc_names
from grader.runtime.native.compile.elf import Bind, Elf, Symbols, SymbolType, start
from grader.runtime.native.compile.harness_objects import (
    HarnessObjects,
    Lane,
    dynamic,
    harness_objects,
    lanes_with,
    section_renames,
)
from grader.runtime.native.project import CProject, NativeProgram
from grader.system import resources
from grader.system.process import Completed
from grader.system.resources import NeededTool
from grader.system.sandbox import COMPILE_LIMITS, LINK_LIMITS, Limits, Workspace

GCC = NeededTool(
    name="gcc", packages="gcc libc6-dev", purpose="compiles the submission with the handout's flags", makes=Tool.BUILD
)
OBJCOPY = NeededTool(
    name="objcopy", packages="binutils", purpose="keeps the submission's names apart from the grader's"
)

STOPPED = "compiler-stopped"
"""The kind of a finding: a tool needed too much time, memory or room for the file."""

_MOST_FOREIGN = 20
_LARGE = 48 << 20
"""The most bytes that a known-good file is padded to. Its programs need more room than any object that gcc writes."""
_MOST_ERRORS = 20
"""The most errors that gcc reports. Without a limit it writes 40 MB of SARIF for a file that includes itself."""
_FIRST_WITH_SARIF = 13
"""The first major version of gcc whose messages for machines are SARIF; before they are JSON."""
_STATUSES = "statuses"
_TELL_STATUSES = ("-wrapper", f'sh,-c,"$0" "$@"; status=$?; echo $status >>{_STATUSES}; exit $status')
"""Options that record how compiler and assembler ended, because gcc's own status hides whether a signal ended them."""
_BY_SIGNAL = 128
"""What the shell adds to the signal's number in the exit status."""
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_CRASHED = frozenset({4, *(_BY_SIGNAL + number for number in _CRASHES)})
"""Statuses of a compiler or assembler that crashed; 4 means gcc's message "internal compiler error"."""
_NOBODY = frozenset({signal.SIGKILL, signal.SIGBUS, signal.SIGTERM, signal.SIGHUP})
"""Signals that a submission's file cannot cause in its compiler."""
_MOST_BYTES = 256 << 10
"""The most bytes of a list of files, because each part of a path costs a look-up. All system headers: 30 KB."""
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
    """The object; None if gcc made none."""
    foreign: tuple[str, ...] = ()
    """Files from outside that gcc or the assembler read."""
    again: Completed | None = None
    """The second run of gcc, with machine-readable messages."""
    stopped: bool = False
    """Whether gcc needed more time, memory or room than it may use."""
    crashed: bool = False
    """Whether gcc or the assembler crashed, because of a defect of its own that this file triggers."""
    too_large: bool = False
    """Whether the output is larger than gcc may write."""
    cpu_seconds: float = 0.0


def compile_file(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Compile the file. Raises `GraderError` when this machine, not the file, may be the cause of a failure."""
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
    form = "sarif-stderr" if gcc_major() >= _FIRST_WITH_SARIF else "json"
    again, statuses = _run_with_statuses(
        work, [*nowhere, "-S", f"-fdiagnostics-format={form}", f"-fmax-errors={_MOST_ERRORS}"]
    )
    compiled = replace(first, again=again, cpu_seconds=first.cpu_seconds + again.cpu_seconds)
    if again.succeeded:  # the assembler rejects the file, or the output is the cause
        most = most_seconds(work, COMPILE_LIMITS)
        done, statuses = _run_with_statuses(work, nowhere)
        compiled = replace(compiled, done=done, cpu_seconds=compiled.cpu_seconds + done.cpu_seconds)
        if done.succeeded or (len(statuses) == 1 and not done.slow and not done.large):
            # the object is written now, or is too large, or there is no room: then `known_good_program` raises
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
    """Return whether gcc failed because it was stopped, not because of an error that it reports.

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
    if again.done.timed_out:
        raise TooBusy(f"{again.step} did not come to its end in time")
    ended = again.done.signal in _NOBODY and not again.exhausted
    if again.step and (resources.memory_kills() > kills or ended):
        raise OutOfRoom(f"{again.step} was ended while it worked: is there memory enough?")
    return replace(again, cpu_seconds=first.cpu_seconds + again.cpu_seconds)


def compile_once(project: CProject, work: Workspace, source: bytes, command: Sequence[str]) -> Compiled:
    """Run the compile command once, and read what gcc wrote."""
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
    home = work.folder.resolve()
    names: dict[str, Path] = {}
    for path in (work.folder / list_file for list_file in _LISTS):
        if not path.is_file():
            continue
        if path.stat().st_size > _MOST_BYTES:
            return [f"a list of files of more than {_MOST_BYTES >> 10} KB"]
        rule = "" if path.is_symlink() else path.read_text("utf-8", "replace")
        for word in _LISTED_NAME.findall(rule.partition(": ")[2].replace("\\\n", " ")):
            name = re.sub(r"\\(.)", r"\1", word).replace("$$", "$")
            names[name] = Path(home, name).resolve()
    return [name for name, path in names.items() if not path.is_relative_to(home) and not work.may_be_read(path)]


def known_good_program(project: CProject, work: Workspace, size: int = 0) -> NativeProgram:
    """Return a known-good program, made of stubs and a few calls of libc; its object has at least `size` bytes.

    Empties the folder before and after. Raises `GraderError` if it cannot be built: then the failure of another file
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
                "/usr/bin or /usr/local/bin whose files are next to it"
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
    """Return what programs of a known-good file run in addition to their functions (`elf.start`), by program and lane.

    The file uses the same names of libc as the object `student`. Return {} if it cannot be linked in these `lanes`.
    Empties the folder.
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
    """Yield the workspace with a full budget, whatever the submission has used up; then charge what was used."""
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
    """Return gcc's major version, 0 if it is unknown."""
    major = resources.first_line(["gcc", "-dumpversion"]).strip().partition(".")[0]
    return int(major) if major.isdecimal() else 0


_PLAIN = re.compile(r"[^\s#@\0-\x1f\x7f]+")
"""A name that objcopy can read in a list, and that has no version. C allows more names than `str.isidentifier`."""

_SUCCEEDED = Completed(exit_code=0, signal=None, timed_out=False, cpu_seconds=0.0)

_ALL = 0.9
"""A tool that used this fraction of its CPU time counts as having used up all, because the kernel counts by ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The two programs of one submission, or the failure of the link."""

    done: Completed = _SUCCEEDED
    """How the step that failed ended."""
    step: str = ""
    """The tool that failed; "" if none did."""
    exhausted: bool = False
    """Whether the tool `step` used up all the time or memory that it may use."""
    unresolved: bool = False
    """Whether functions that no file defines are the only reason for the failure."""
    programs: Mapping[str, Elf] = field(default_factory=dict)
    """The native program and the one for Valgrind, by the names of their files: "program" and "checked"."""
    gated: Elf | None = None
    """The object of which the native program was linked; the object of the other program is nearly the same."""
    lanes: Mapping[str, str] = field(default_factory=dict)
    """The lane of each of the two programs."""
    cpu_seconds: float = 0.0

    def program(self, source_name: str) -> NativeProgram:
        """Return one `NativeProgram` with the native program and the one for Valgrind."""
        native, checked = self.programs["program"].data, self.programs["checked"].data
        return NativeProgram(content=native, checked=checked, source_name=source_name)


def link(
    project: CProject,
    work: Workspace,
    elf: Elf,
    *,
    missing: Sequence[str] = (),
    called_by_gcc: Collection[str] = (),
    only: Mapping[str, str] | None = None,
) -> Linked:
    """Hide everything but the demanded functions, rename what the harness replaces, link with the driver.

    `elf` is the student's object. A step that fails is returned: the caller has to find out the cause. `called_by_gcc`
    has patterns of the harness's functions that an instrumented object calls; no other object can call these. `only`
    holds, by program, the only lane to try.
    """
    side = harness_objects(project)
    for name, content in {**side.objects, project.object_name: elf.data}.items():
        work.add(name, content)
    steps, others = _before_linking(project, work, side, elf, missing=missing, called_by_gcc=called_by_gcc)
    spent = 0.0
    for command in steps:
        done, exhausted = _tried(work, command)
        spent += done.cpu_seconds
        if not done.succeeded:
            return Linked(done=done, step=command[0], exhausted=exhausted, cpu_seconds=spent)
    lanes = lanes_with(side.starts, only)
    programs: dict[str, Elf] = {}
    lane_of: dict[str, str] = {}
    for name, student, harness in (("program", "gated.o", "native.o"), ("checked", "student.o", "valgrind.o")):
        objects = ["marker.o", student, *others, harness]
        done, lane_of[name], exhausted = _first_that_links(work, lanes[name], name, objects)
        spent += done.cpu_seconds
        if exhausted:
            return Linked(done=done, step="ld", exhausted=True, cpu_seconds=spent)
        program = Elf.read(work.read(name)) if done.succeeded else None
        if program is None:
            blind = work.run([*dynamic("blind", objects), _IGNORE], limits=LINK_LIMITS)
            unresolved = blind.succeeded and not done.succeeded
            return Linked(done=done, step="ld", unresolved=unresolved, cpu_seconds=spent + blind.cpu_seconds)
        programs[name] = program
    return Linked(programs=programs, gated=Elf.read(work.read("gated.o")), lanes=lane_of, cpu_seconds=spent)


def _before_linking(
    project: CProject,
    work: Workspace,
    side: HarnessObjects,
    elf: Elf,
    *,
    missing: Sequence[str],
    called_by_gcc: Collection[str],
) -> tuple[list[list[str]], list[str]]:
    """Return the commands that make student.o and gated.o of the object, and the other objects that they make."""
    symbols = Symbols.of(elf)
    instrumented = [name for pattern in called_by_gcc for name in fnmatch.filter(symbols.undefined, pattern)]
    refused = libc_names.refused(symbols.undefined.difference(instrumented), side.libc)
    replaced = (*symbols.undefined.intersection(libc_names.RENAMED), *instrumented, *refused)
    renamed = [f"{name} {side.prefix}{name}" for name in replaced]
    # weak names of inner parts of libc are NULL in the handout's program; in a static one they would not be
    inner = symbols.weak.intersection(side.only_static()) if symbols.weak else frozenset()
    hidden = (symbols.unhideable - project.functions.keys()) | inner
    renamed += [f"{name} s{secrets.token_hex(8)}" for name in hidden if _PLAIN.fullmatch(name)]
    _add_lines(work, "theirs.sym", renamed)
    _add_lines(work, "api.sym", project.functions)
    variables, code = section_renames(elf)
    hide = ("--redefine-syms=theirs.sym", "--keep-global-symbols=api.sym")
    # common variables get a place in .bss, so that the harness knows them as variables and restores them
    placed = [["ld", "-r", "-d", project.object_name, "-o", "placed.o"]] if symbols.common else []
    steps = [
        *placed,
        ["objcopy", *hide, *variables, "placed.o" if placed else project.object_name, "student.o"],
        ["objcopy", *code, "student.o", "gated.o"],
    ]
    if not missing and not refused:
        return steps, []
    stubs = [libc_names.stub(declared, name, side.prefix) for name, declared in refused.items()]
    stubs += [project.functions[name] for name in missing]
    work.add(project.header.name, project.header.read_bytes())
    _add_lines(work, "stubs.c", (*libc_names.declarations(side.prefix), f'#include "{project.header.name}"', *stubs))
    return [*steps, ["gcc", "-std=c11", "-O2", "-c", "stubs.c", "-o", "stubs.o"]], ["stubs.o"]


_IGNORE = "-Wl,--unresolved-symbols=ignore-all"
"""With this option, ld succeeds if undefined references are the only problem, so its messages need not be parsed."""


def _first_that_links(
    work: Workspace, lanes: Mapping[str, Lane], target: str, objects: Sequence[str]
) -> tuple[Completed, str, bool]:
    """Try the lanes in order until one of them links.

    Return how the last lane that was tried ended, its name, and whether ld used up the time or memory that it may use.
    In that case no other lane is tried.
    """
    (lane, command), *others = lanes.items()
    done, exhausted = _tried(work, command(target, objects))
    if done.succeeded or exhausted or not others:
        return done, lane, exhausted
    again, lane, exhausted = _first_that_links(work, dict(others), target, objects)
    return replace(again, cpu_seconds=done.cpu_seconds + again.cpu_seconds), lane, exhausted


def _tried(work: Workspace, command: Sequence[str]) -> tuple[Completed, bool]:
    """Run the command; return how it ended, and whether it failed because it used up its time or memory."""
    most = most_seconds(work, LINK_LIMITS)
    done = work.run(command, limits=LINK_LIMITS)
    return done, not done.succeeded and (done.large or done.cpu_seconds >= most)


def most_seconds(work: Workspace, limits: Limits) -> float:
    """Return the CPU seconds after which a tool that was ended counts as ended by its limit of CPU time."""
    most = work.budget.cpu_limit(limits.cpu_seconds)
    return _ALL * (most if limits.own_seconds is None else min(most, limits.own_seconds))


def _add_lines(work: Workspace, name: str, lines: Iterable[str]) -> None:
    work.add(name, "".join(f"{line}\n" for line in lines).encode())
