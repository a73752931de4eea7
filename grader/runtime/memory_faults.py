"""What an instrument saw of a program's use of memory, case by case."""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.core.verdict import SourceLine
from grader.runtime.source_lines import Place

__all__ = ["LEAK", "STORE", "UNSET", "Checked", "MemoryFault"]

LEAK = "Leak"
"""Kinds of Valgrind that begin so are lost memory."""

UNSET = "Uninit"
"""Kinds of Valgrind that begin so are values that were never set."""

STORE = "InvalidWrite"
"""Valgrind's kind of a store where none may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error of Valgrind. `operation` counts from 0; for a leak it is the number of operations."""

    case: int
    operation: int
    kind: str
    message: str
    lines: tuple[SourceLine, ...]
    auxiliary: tuple[SourceLine, ...]
    """Where the memory was allocated or freed."""
    breach: bool = False
    """Was it an access to shared memory that its operation may not touch?"""
    freed: bool = False
    """Was it an access to memory that had been freed? Then `auxiliary` says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What Valgrind saw."""

    errors: tuple[MemoryFault, ...]
    counted: dict[Place, int]
    """How many errors it counted in each operation, repeated ones too, which it does not print again."""
    stopped: dict[int, int]
    """Cases that ran to their end natively and not under Valgrind, with the operation (from 0) they stopped in."""
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]]
    """Cases that do so twice without coming to an end, or need far more time than Valgrind needs for what they do
    natively: with the operation and the lines they were in."""
    diverged: dict[int, int]
    """Cases that allocate and free otherwise than natively although nothing was wrong, with the first operation."""
    unchecked: tuple[int, ...]
    """Cases that were not seen to their end because the time or the processes were used up."""
    processes: int
    cpu_seconds: float
    breaches: tuple[MemoryFault, ...] = ()
    stores: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that stored into shared memory which the operation may not touch, repeated ones too."""
    copies: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that read what the operation may only read; of a few cases with a difference."""
    cut: bool = False  # did it stop in the middle of its report, although all cases were through?
    unexplained: bool = False  # or in the middle of a case, and neither we nor the harness ended it?
    unread: tuple[tuple[Place, str, tuple[int, ...]], ...] = ()
    """Of each process of whose report not all could be read: where it was at its end, why not, and all its cases.
    What is lost is the program's doing, for Valgrind's own report is short and whole."""
    refused: str = ""  # what it said when it did not begin with any case

    @property
    def unexplained_end(self) -> str:
        """What somebody who ended Valgrind could have done as well; "" when nothing is."""
        middle = "of its report" if self.cut else "of a case" if self.unexplained else ""
        ended = f"Valgrind ended in the middle {middle}, and nobody says why" if middle else ""
        return f"Valgrind did not start the program: {self.refused}" if self.refused else ended

    @property
    def unseen(self) -> frozenset[int]:
        """Cases that are not seen through the program's own doing.

        That are unchecked ones, where earlier ones stopped or hung under Valgrind only or had its report spoiled, and
        those of which the report is not whole.
        """
        unseen = frozenset(number for _, _, cases in self.unread for number in cases)
        return unseen.union(self.unchecked if self.stopped or self.hung or self.unread else ())
