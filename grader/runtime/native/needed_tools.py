"""The programs that C submissions are built, run and observed with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from grader.core.verdict import Tool
from grader.system import process
from grader.system.process import Patience
from grader.system.resources import NeededTool

GCC = NeededTool(
    name="gcc",
    packages="gcc libc6-dev",
    purpose="compiles the submission with the handout's flags",
    makes=Tool.BUILD,
)
OBJCOPY = NeededTool(
    name="objcopy", packages="binutils", purpose="keeps the submission's names apart from the grader's"
)
ADDR2LINE = NeededTool(name="addr2line", packages="binutils", purpose="finds source lines of crashes and leaks")
VALGRIND = NeededTool(
    name="valgrind",
    title="Valgrind",
    packages="valgrind libc6-dbg",
    purpose="looks for memory errors and leaks (or --without-memory-checker)",
    makes=Tool.MEMORY_CHECKER,
    instead="Or grade without it, by the grader's own instruments only: --without-memory-checker",
)

STARTED = ("gcc", "as", "ld", "ld.gold", "objcopy", "objdump", "addr2line", "valgrind")
"""All programs that are started on a submission, directly or by another one."""

UNCHECKED = (
    "Valgrind did not run. Not checked: reads outside an allocation, use of freed memory, values used "
    "before they are set. Leaks and bad calls of free were counted all the same."
)
"""What a record says when Valgrind was not wanted."""


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
