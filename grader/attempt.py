"""What is known of a submission on its way through the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grader.breaches import Place
from grader.collect import Source
from grader.compare import Comparison
from grader.diagnose import CaseFindings, Diagnosed
from grader.grammar import Case
from grader.lab import Built, Lab, Program
from grader.memcheck import Checked
from grader.replay import Replayed
from grader.sandbox import Workspace
from grader.symptom import Named
from grader.verdict import Advice, RuleScore

__all__ = ["Attempt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of a submission so far; each step fills in its part."""

    lab: Lab
    path: Path
    cases: tuple[Case, ...]
    work: Workspace
    seed: int
    valgrind: bool = True
    advise: bool = False
    """Is advice wanted that costs time?"""
    counting: bool = False
    """Are instructions to be counted?"""
    hidden: Mapping[str, int] | None = None
    """What cases weigh that are not run here, for the public part."""
    relaxed: bool = False
    allowed: frozenset[str] = frozenset()
    """Symbols for which nothing is rejected."""
    source: Source | None = None
    built: Built | None = None
    replayed: Replayed | None = None
    comparisons: tuple[Comparison, ...] = ()
    checked: Checked | None = None
    instructions: int | None = None
    named: Mapping[Place, Named] = field(default_factory=dict)
    """Lines of wrong replies and values, where they were looked for."""
    found: tuple[CaseFindings, ...] = ()
    diagnosed: Diagnosed | None = None
    advice: tuple[Advice, ...] = ()
    """Of the steps after the build."""
    scores: tuple[RuleScore, ...] = ()
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def program(self) -> Program | None:
        """What the build made."""
        return self.built.program if self.built is not None else None

    @property
    def can_run(self) -> bool:
        """Is there a program?"""
        return self.program is not None
