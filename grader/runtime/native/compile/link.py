"""Link the student's object, the driver and the harness into a program, keeping their names and memory apart."""

from __future__ import annotations

import fnmatch
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap

from grader.runtime.native.compile.harness_objects import (
    HarnessObjects,
    Lane,
    dynamic,
    harness_objects,
    lanes_with,
)
from grader.runtime.native.project import CProject, NativeProgram
from grader.runtime.native.scan import libc_names
from grader.runtime.native.scan.elf import Elf, Flag, SectionType, Symbols
from grader.runtime.native.scan.expected import is_safe
from grader.system.process import Completed
from grader.system.sandbox import LINK_LIMITS, Limits, Workspace

_PLAIN = re.compile(r"[^\s#@\0-\x1f\x7f]+")
"""A name that objcopy can read in a list, and that has no version. C allows more names than `str.isidentifier`."""

_SUCCEEDED = Completed(exit_code=0, signal=None, timed_out=False, cpu_seconds=0.0)

_ALL = 0.9
"""The part of its CPU time from which on a tool counts as having used it up: CPU time is counted by ticks."""

_DATA: dict[int, str] = {SectionType.PROGBITS: "student_data", SectionType.NOBITS: "student_bss"}
"""New names, by type, of all sections with writable data. The harness restores these before every case."""

_CODE = "student_text"
"""The new name of sections with code: system calls from there are refused (harness/gate.c).

Only the native program has it: Valgrind knows .text.
"""

_CODE_BY_NAME = (".text", ".stub", ".init", ".fini", ".plt", ".iplt", ".gnu.linkonce.t")
"""Names of read-only sections that linkers lay beside code, whether or not their flags say that they are code."""


def _renames(elf: Elf) -> tuple[list[str], list[str]]:
    """Return objcopy's options that rename sections: with writable data that is not thread-local, and with code."""
    variables: dict[str, str] = {}
    code: dict[str, str] = {}
    for section in elf.sections:
        flags = section.flags & (Flag.WRITE | Flag.ALLOC | Flag.EXECUTE | Flag.TLS)
        beside_code = flags & ~Flag.EXECUTE == Flag.ALLOC and section.name.startswith(_CODE_BY_NAME)
        if not is_safe(section.name):  # such a name gets here only when it was allowed (`--allow`)
            continue
        if flags & Flag.ALLOC and (flags & Flag.EXECUTE or beside_code):
            code[section.name] = _CODE
        elif flags == Flag.WRITE | Flag.ALLOC and section.type in _DATA:
            variables[section.name] = _DATA[section.type]
    rename = "--rename-section={}={}".format
    return list(starmap(rename, variables.items())), list(starmap(rename, code.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The two programs of one submission, or the failure of the link."""

    done: Completed = _SUCCEEDED
    """How the step that failed ended."""
    step: str = ""
    """The tool that failed; "" when none did."""
    exhausted: bool = False
    """Whether that tool used up all the time or memory that it may use."""
    unresolved: bool = False
    """Whether functions that no file defines are the only reason for the failure."""
    programs: Mapping[str, Elf] = field(default_factory=dict)
    """Both programs, by the names of their files: `checked` is the one that Valgrind runs."""
    prefix: str = ""
    """The prefix of the names of the harness's functions in the programs."""
    gated: Elf | None = None
    """The object that the native program was linked from; that of the other program is nearly the same."""
    starts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By program and lane: what a known-good program runs besides its functions (expected.py)."""
    lanes: Mapping[str, str] = field(default_factory=dict)
    """The lane of each program, by program."""
    cpu_seconds: float = 0.0

    def program(self, source_name: str) -> NativeProgram:
        """Return both programs as one."""
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
    return Linked(
        programs=programs,
        prefix=side.prefix,
        gated=Elf.read(work.read("gated.o")),
        starts=side.starts,
        lanes=lane_of,
        cpu_seconds=spent,
    )


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
    variables, code = _renames(elf)
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
    """Return the CPU seconds from which on a tool that was ended counts as ended for its use of CPU time."""
    most = work.budget.cpu_limit(limits.cpu_seconds)
    return _ALL * (most if limits.own_seconds is None else min(most, limits.own_seconds))


def _add_lines(work: Workspace, name: str, lines: Iterable[str]) -> None:
    work.add(name, "".join(f"{line}\n" for line in lines).encode())
