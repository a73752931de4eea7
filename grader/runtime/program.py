"""What a build made of a submission."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.verdict import Advice, Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that a build made. A runtime may have a class of its own for what else it makes."""

    content: bytes
    source_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of a build. Without `program` it failed; there may be findings with a program too."""

    program: Program | None
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    allowed: tuple[str, ...] = ()
    """Symbols that would have been rejected if they had not been allowed."""
    missing: tuple[str, ...] = ()
    """What is demanded and not there, although the rest can be run."""
    stopped: bool = False
    """Whether the build needed so much that it had to be stopped; then it is not run again."""
    command: str = ""
    cpu_seconds: float = 0.0

    @property
    def rejected(self) -> bool:
        """Whether a person must look at it before anything of it is run."""
        return any(finding.verdict is Verdict.REJECTED for finding in self.findings)
