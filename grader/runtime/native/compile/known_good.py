"""Check that a known-good file is compiled and linked here and now, before a student's file is blamed for a failure.

It is built anew whenever a tool failed, never taken from a cache. It is built in the same folder, by the same user,
under the same protection, and is as large as the file that failed. So a full disk, a missing tool and a limit that is
too low are recognised as such.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from grader.core.errors import BrokenTool
from grader.runtime.native.compile.elf import Bind, Elf, Kind
from grader.runtime.native.compile.link import link
from grader.runtime.native.compile.outside_files import TELL, outside_files
from grader.runtime.native.compile.project import CProject
from grader.runtime.native.compile.startup import start
from grader.runtime.native.native_program import NativeProgram
from grader.system import resources
from grader.system.budget import Budget
from grader.system.process import Completed
from grader.system.sandbox import COMPILE_LIMITS, Workspace

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


def known_good_program(project: CProject, work: Workspace, size: int = 0) -> NativeProgram:
    """Return the program of a submission without mistakes that does nothing; its object has at least `size` bytes.

    Empties the folder before and after. Raises `GraderError` when it cannot be built: then a failure of another file
    says nothing about that file.
    """
    with _paid(work) as place:
        return _known_good_program(project, place, size)


@contextlib.contextmanager
def _paid(work: Workspace) -> Iterator[Workspace]:
    """Yield the workspace with a full budget, whatever the submission used up; then charge the submission for it."""
    place = replace(work, budget=Budget())
    whole = place.budget.wall
    try:
        yield place
    finally:
        work.budget.take(place.budget.paid, whole - place.budget.wall)


def _known_good_program(project: CProject, work: Workspace, size: int) -> NativeProgram:
    work.clear()
    padding = f"char known_good_padding[{size}] = {{1}};\n" if size else ""
    headers = "".join(f"#include <{header}.h>\n" for header in _HEADERS) + f'#include "{project.header.name}"\n'
    source = headers + padding + _USE + "".join(f"{stub}\n" for stub in project.functions.values())
    work.add(project.source_name, source.encode())
    work.add(project.header.name, project.header.read_bytes())
    compiled = work.run([*project.compile_command, *TELL], limits=COMPILE_LIMITS)
    elsewhere = outside_files(work) if compiled.succeeded else []
    if elsewhere:
        raise BrokenTool(
            f"gcc takes its own headers from {elsewhere[0]}, where no submission may read; put a gcc on /usr/bin or "
            "/usr/local/bin whose files lie beside it"
        )
    data = work.read(project.object_name)
    elf = Elf.read(data) if compiled.succeeded else None
    if elf is None:
        raise _broken("gcc", compiled)
    linked = link(project, work, data, elf, missing=())
    if linked.step:
        raise _broken(linked.step, linked.done)
    resources.check_room(work.folder)
    work.clear()
    return NativeProgram(content=linked.native, checked=linked.checked, source_name=project.source_name)


def known_good_start(
    project: CProject, work: Workspace, student: Elf, lanes: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return what programs of a known-good file with this object's needs of libc run besides their functions.

    By program and lane; empty when it cannot be linked in these lanes. Empties the folder.
    """
    known_good_program(project, work)
    with _paid(work) as place:
        return _known_good_start(project, place, student, lanes)


def _known_good_start(
    project: CProject, work: Workspace, student: Elf, lanes: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    needed = "".join(
        f".weak {symbol.name}\n.quad {symbol.name}\n" if symbol.bind == Bind.WEAK else f".quad {symbol.name}\n"
        for symbol in student.symbols()
        if not symbol.section and symbol.kind != Kind.TLS and _NAME.fullmatch(symbol.name)
    )
    work.add("needed.s", f".data\n{needed}".encode())
    source = [f'#include "{project.header.name}"\n', *(f"{stub}\n" for stub in project.functions.values())]
    work.add(project.source_name, "".join(source).encode())
    work.add(project.header.name, project.header.read_bytes())
    for command in (
        project.compile_command,
        ("gcc", "-c", "needed.s", "-o", "needed.o"),
        ("ld", "-r", project.object_name, "needed.o", "-o", "both.o"),
    ):
        work.run(command, limits=COMPILE_LIMITS)
    data = work.read("both.o")
    elf = Elf.read(data)
    linked = link(project, work, data, elf, missing=(), only=lanes) if elf else None
    work.clear()
    programs = {name: Elf.read(content) for name, content in linked.programs.items()} if linked else {}
    return {f"{name} {lanes[name]}": start(elf) for name, elf in programs.items() if elf}


def _broken(tool: str, done: Completed) -> BrokenTool:
    if done.timed_out:
        return BrokenTool(f"{tool} does not come to an end here, not even with a known-good file")
    stderr = done.stderr.decode(errors="replace").strip()[:2000]
    return BrokenTool(f"{tool} does not even make a program of a known-good file here:\n{stderr or 'it says nothing'}")
