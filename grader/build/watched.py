"""Build a C submission once more, so that it tells of undefined behaviour while it runs (gcc's -fsanitize=undefined).

The functions that gcc calls then are in drivers/trouble.c. So nothing of libubsan is needed, every place is told of
with its line and column in a frame of the report, and the program goes on behind it.
"""

from __future__ import annotations

from grader.build.link import Symbols, link
from grader.build.project import CProject
from grader.errors import DriverError
from grader.lab import Built, Program
from grader.sandbox import COMPILE_LIMITS, Workspace

__all__ = ["build_watched"]


def build_watched(project: CProject, work: Workspace, source: bytes) -> Built:
    """Compile and link `source`, which the handout's command accepts. Without a program in it gcc was stopped.

    Warnings are forgiven: what gcc puts in makes it warn of more.
    """
    work.add(project.source_name, source)
    work.add(project.header.name, project.header.read_bytes())
    flags = [flag for flag in project.compile_command if flag != "-Werror"]
    done = work.run([*flags, "-fsanitize=undefined"], limits=COMPILE_LIMITS)
    spent = done.cpu_seconds
    if not done.succeeded:
        return Built(program=None, cpu_seconds=spent)
    data = work.read(project.object_name)
    symbols = Symbols.read(data)
    if symbols is None:
        raise DriverError("gcc says that it compiled the file, and left no object")
    linked = link(project, work, data, symbols, missing=())
    program = None
    if not linked.step:
        program = Program(content=linked.native, source_name=project.source_name)
    return Built(program=program, cpu_seconds=spent + linked.cpu_seconds)
