"""The findings and the diagnosis of what was observed of a submission; made once for the same observations.

A runtime asks for them in between (`Suspect`), to look more closely at what is suspicious.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from grader.assignment.lab import Lab
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.judge.case_causes import case_findings
from grader.judge.case_findings import CaseFindings, suspicions
from grader.judge.diagnose import Diagnosed, diagnose
from grader.judge.symptoms import stacks_of
from grader.runtime.protocol import Observations, Suspected
from grader.runtime.source_lines import Lines

__all__ = ["Diagnoses"]


@dataclass(slots=True)
class Diagnoses:
    """Judges the observations of one submission."""

    lab: Lab
    lines: Callable[[Iterable[tuple[int, ...]]], Lines]
    """Finds the submission's lines on stacks of addresses."""
    optional: OptionalStages
    _seen: tuple[object, ...] = field(default=(), init=False)
    _made: tuple[tuple[CaseFindings, ...], Diagnosed] | None = field(default=None, init=False)

    def of(self, observed: Observations) -> tuple[tuple[CaseFindings, ...], Diagnosed]:
        """The findings of each case, and the diagnosis."""
        seen = (observed.comparisons, observed.checked, observed.named)
        if self._made is None or any(one is not other for one, other in zip(seen, self._seen, strict=True)):
            find = partial(self.lines, stacks_of(observed.comparisons))
            found = case_findings(
                observed.comparisons,
                self.optional.run(OptionalStage.LINES, find, otherwise={}),
                observed.checked,
                self.lab,
                named=observed.named,
                optional=self.optional,
            )
            self._seen, self._made = seen, (tuple(found), diagnose(found, self.lab))
        return self._made

    def suspect(self, observed: Observations) -> Suspected:
        """What a runtime should look at more closely."""
        found, diagnosed = self.of(observed)
        diagnosis = diagnosed.diagnosis
        return Suspected(shown=diagnosis.case if diagnosis is not None else None, suspicions=suspicions(found))
