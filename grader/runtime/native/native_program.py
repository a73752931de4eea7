"""The programs that a build of a C submission makes."""

from __future__ import annotations

from dataclasses import dataclass

from grader.runtime.protocol import Program
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeProgram(Program):
    """A program. It is written anew before every use, because a run may have replaced the file."""

    checked: bytes = b""
    """The same program, built for Valgrind."""

    def place(self, work: Workspace, *, checked: bool = False) -> str:
        """Write it into the workspace and return its name there."""
        name = "checked" if checked else "program"
        work.add(name, self.checked if checked else self.content, mode=0o755)
        return name


def native_program(program: Program) -> NativeProgram:
    """Return the program as this runtime's build made it."""
    assert isinstance(program, NativeProgram)
    return program
