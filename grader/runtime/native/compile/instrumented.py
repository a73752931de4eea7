"""Build a C submission once more, instrumented to report undefined behaviour or lines while it runs.

The functions that the instrumented code calls are in harness/faults.c and harness/lines.c. So nothing of libubsan or
libtsan is needed, events are reported in frames of the report, and the program continues after an event.

A trap would end the case at its first event; libubsan would have to be installed and its text parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from grader.core.errors import DriverError
from grader.runtime.native.compile.elf import Elf
from grader.runtime.native.compile.expected_object import too_much
from grader.runtime.native.compile.harness_objects import SANITIZED_CALLS, TRACED_CALLS
from grader.runtime.native.compile.link import link
from grader.runtime.native.compile.project import CProject
from grader.runtime.native.native_program import NativeProgram
from grader.runtime.protocol import Built
from grader.system.sandbox import COMPILE_LIMITS, Workspace

_LINES = ("-O0", "-fno-builtin", "-fsanitize-coverage=trace-pc", "-fsanitize=thread")


def build_sanitized(project: CProject, work: Workspace, source: bytes) -> Built:
    """Build a program that reports undefined behaviour; see `_built`."""
    return _built(project, work, source, ("-fsanitize=undefined",), called=SANITIZED_CALLS)


def build_with_lines(project: CProject, work: Workspace, source: bytes) -> Built:
    """Build a program, not optimized, that reports which lines it runs and which line stored what; see `_built`."""
    return _built(project, work, source, _LINES, called=TRACED_CALLS)


def _built(
    project: CProject, work: Workspace, source: bytes, options: Sequence[str], *, called: Sequence[str]
) -> Built:
    """Compile and link `source`, which the handout's command accepts; gcc inserts calls of functions like `called`.

    The result has no program when gcc was stopped, the object exceeds a bound (`too_much`) or the link failed.
    Warnings are forgiven: the code that gcc inserts causes more of them.
    """
    work.add(project.source_name, source)
    work.add(project.header.name, project.header.read_bytes())
    flags = [flag for flag in project.compile_command if flag != "-Werror"]
    done = work.run([*flags, *options], limits=COMPILE_LIMITS)
    spent = done.cpu_seconds
    if not done.succeeded:
        return Built(program=None, cpu_seconds=spent)
    data = work.read(project.object_name)
    elf = Elf.read(data)
    if elf is None:
        raise DriverError("gcc says that it compiled the file, and left no object")
    if too_much(elf):
        return Built(program=None, cpu_seconds=spent)
    linked = link(project, work, data, elf, missing=(), called_by_gcc=called)
    program = None
    if not linked.step:
        program = NativeProgram(content=linked.native, source_name=project.source_name)
    return Built(program=program, cpu_seconds=spent + linked.cpu_seconds)
