"""What a build made of a submission."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.verdict import Advice, Finding, Verdict
from grader.system.sandbox import Workspace

__all__ = ["Built", "Program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a build made. It is put in place before every use: what runs may have replaced the file."""

    content: bytes
    checked: bytes = b""
    """The same, made for Valgrind."""
    source_name: str

    def place(self, work: Workspace, *, checked: bool = False) -> str:
        """Put it into the workspace; returns its name there."""
        name = "checked" if checked else "program"
        work.add(name, self.checked if checked else self.content, mode=0o755)
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The end of a build. Without `program` it failed; findings may stand beside a program too."""

    program: Program | None
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    allowed: tuple[str, ...] = ()
    """Symbols that would have been rejected, had nobody allowed them."""
    stopped: bool = False
    """Did the compiler need so much that it had to be stopped? Then nobody asks it again."""
    compiler: str = ""
    command: str = ""
    cpu_seconds: float = 0.0

    @property
    def rejected(self) -> bool:
        """Must somebody look at it before anything of it is run?"""
        return any(finding.verdict is Verdict.REJECTED for finding in self.findings)
