"""What Valgrind observed of a program's use of memory, case by case."""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.core.verdict import SourceLine
from grader.runtime.source_lines import Place

__all__ = ["LEAK", "STORE", "UNSET", "Checked", "MemoryFault"]

LEAK = "Leak"
"""Prefix of Valgrind's error kinds for lost memory."""

UNSET = "Uninit"
"""Prefix of Valgrind's error kinds for values that were never set."""

STORE = "InvalidWrite"
"""Valgrind's error kind for a store to memory that must not be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error that Valgrind reported. `operation` counts from 0; for a leak it is the number of operations."""

    case: int
    operation: int
    kind: str
    message: str
    lines: tuple[SourceLine, ...]
    auxiliary: tuple[SourceLine, ...]
    """Where the memory was allocated or freed."""
    breach: bool = False
    """Whether it was an access to shared memory that its operation may not touch."""
    freed: bool = False
    """Whether it was an access to freed memory. Then `auxiliary` says where the memory was freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What Valgrind reported on all cases that it ran."""

    errors: tuple[MemoryFault, ...]
    counted: dict[Place, int]
    """The number of errors that it counted in each operation. It includes repeated errors, which are printed once."""
    stopped: dict[int, int]
    """Cases that ran to their end natively but not under Valgrind, with the operation (from 0) where they stopped."""
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]]
    """Cases that end natively but hang twice under Valgrind, or need far more time than Valgrind needs for what they do
    natively. With the operation and the lines where they were."""
    diverged: dict[int, int]
    """Cases that allocate and free differently than natively without an error, with the first such operation."""
    unchecked: tuple[int, ...]
    """Cases that were not observed to their end because the time or the processes were used up."""
    processes: int
    cpu_seconds: float
    breaches: tuple[MemoryFault, ...] = ()
    stores: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that stored into shared memory which the operation may not touch, including repeated stores."""
    copies: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that read memory which the operation may only read; for a few cases with a difference."""
    cut: bool = False  # whether its report stops in the middle although the program came to its end
    unexplained: bool = False  # or in the middle of a case, and neither the grader nor the harness ended it
    unread: tuple[tuple[Place, str, tuple[int, ...]], ...] = ()
    """For each process whose report could not be read in full: where it was at its end, the reason, and all its cases.
    The program caused the loss, because Valgrind's own report is short and complete."""
    refused: str = ""  # what it printed when it did not begin any case

    @property
    def unexplained_end(self) -> str:
        """How Valgrind ended, where something outside the program could have caused that too; "" otherwise."""
        middle = "of its report" if self.cut else "of a case" if self.unexplained else ""
        ended = f"Valgrind ended in the middle {middle}, and nobody says why" if middle else ""
        return f"Valgrind did not start the program: {self.refused}" if self.refused else ended

    @property
    def unseen(self) -> frozenset[int]:
        """Cases that were not observed in full because of the program itself.

        These are the cases of each process whose report is incomplete. When cases stopped or hung under Valgrind only,
        or a report is incomplete, the unchecked cases are added.
        """
        unseen = frozenset(number for _, _, cases in self.unread for number in cases)
        return unseen.union(self.unchecked if self.stopped or self.hung or self.unread else ())
