"""What was observed of a C program: the harness's and Valgrind's reports, and the symptoms that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from grader.runtime.native.leaks import HeapUse
from grader.runtime.native.symbolize import Lines
from grader.runtime.native.symptoms import culprits, symptoms
from grader.runtime.native.valgrind.contract import Allowed
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.protocol import Observations, Unplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeObservations(Observations):
    """What was observed, with what its symptoms are made of."""

    uses: Sequence[HeapUse]
    """What became of each case's allocations."""
    lines: Lines = field(default_factory=dict)
    """The lines on the stacks that the harness reported."""
    checked: Checked | None = None
    """What Valgrind reported; None where it was not run."""
    allowed: Allowed = field(default_factory=dict)
    """The contracts of the cases that Valgrind ran."""

    def completed(self) -> NativeObservations:
        """Return the same with the symptoms and culprits of what was reported so far."""
        checked = self.checked
        return replace(
            self,
            symptoms=symptoms(self.comparisons, self.uses, self.lines, checked),
            culprits=culprits(self.comparisons, self.uses, self.lines, checked),
            unseen=checked.unseen if checked is not None else frozenset(),
            coverage=checked.coverage if checked is not None else None,
        )

    def tells_more(self, than: NativeObservations, fault: Unplaced) -> bool:
        """Whether the line of a wrong value of this operation is known here and was not known there."""
        place = fault.case, fault.operation
        tags = self.culprits.get(place, {}).keys() - than.culprits.get(place, {}).keys()
        differences = fault.judgement.differences if fault.judgement is not None else ()
        return fault.difference is not None and any(tags & difference.tags for difference in differences)
