"""What a memory checker observed of a program's use of memory, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grader.core.verdict import SourceLine
from grader.runtime.protocol import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error that the checker reported. `operation` counts from 0; for a leak it is the number of operations."""

    case: int
    operation: int
    kind: str
    """The word for it in findings."""
    symptom: str
    """The word for it in clues."""
    message: str
    lines: tuple[SourceLine, ...]
    auxiliary: tuple[SourceLine, ...]
    """Where the memory was allocated or freed."""
    origin: str = ""
    """What happened at `auxiliary`, as a sentence that its place ends."""
    leak: bool = False
    unset: bool = False
    """Whether a value was used that was never set."""
    stores: bool = False
    """Whether it was a store to memory that must not be written."""
    breach: bool = False
    """Whether it was an access to shared memory that its operation may not touch."""
    explains_state: bool = False
    """Whether it probably caused a wrong state of the same call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfreed:
    """What the checker itself says was never freed in some consecutive cases of one process."""

    cases: tuple[int, ...]
    unreported: int
    """The number of these allocations that the program's process did not report as left."""
    by_function: Mapping[str, int]
    """How many each of the submission's functions allocated, by the outermost function on the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checker reported on all cases that it ran."""

    tool: str
    """The checker's name, as reports write it."""
    asked: int
    """The number of cases that it was to run."""
    errors: tuple[MemoryFault, ...]
    counted: dict[Place, int]
    """The number of errors that it counted in each operation. It includes repeated errors, which are printed once."""
    stopped: dict[int, int]
    """Cases that ran to their end without the checker but not with it; the operation (from 0) where they stopped."""
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]]
    """Cases that end without the checker but hang twice with it, or need far more time than it needs for what they do
    without it. With the operation and the lines where they were."""
    diverged: dict[int, int]
    """Cases that allocate and free differently than without the checker, without an error; the first such operation."""
    unchecked: tuple[int, ...]
    """Cases that were not observed to their end."""
    processes: int = 0
    cpu_seconds: float = 0.0
    breaches: tuple[MemoryFault, ...] = ()
    evasion: str = ""
    """How the program kept the unchecked cases from the checker, in words that fit after "the program"; "" where no
    time was left for them."""
    left: Mapping[int, int] = field(default_factory=dict)
    """By case in which all operations returned: how many allocations the program's process reported as left."""
    unfreed: tuple[Unfreed, ...] = ()
    stores: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that stored into shared memory which the operation may not touch, including repeated stores."""
    copies: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that read memory which the operation may only read; for a few cases with a difference."""
    cut: bool = False  # whether its report stops in the middle although the program came to its end
    unexplained: bool = False  # or in the middle of a case, and neither the grader nor the harness ended it
    unread: tuple[tuple[Place, str, tuple[int, ...]], ...] = ()
    """For each process whose report could not be read in full: where it was at its end, the reason, and all its cases.
    The program caused the loss, because the checker's own report is short and complete."""
    refused: str = ""  # what it printed when it did not begin any case

    @property
    def unexplained_end(self) -> str:
        """How the checker ended, where something outside the program could have caused that too; "" otherwise."""
        middle = "of its report" if self.cut else "of a case" if self.unexplained else ""
        ended = f"{self.tool} ended in the middle {middle}, and nobody says why" if middle else ""
        return f"{self.tool} did not start the program: {self.refused}" if self.refused else ended

    @property
    def unseen(self) -> frozenset[int]:
        """Cases that were not observed in full because of the program itself.

        These are the cases of each process whose report is incomplete, and the cases that were kept from the checker.
        """
        unseen = frozenset(number for _, _, cases in self.unread for number in cases)
        return unseen.union(self.unchecked if self.evasion else ())

    @property
    def coverage(self) -> str:
        """What the checker saw, in a sentence; "" when it saw everything."""
        if not self.unchecked:
            return ""
        seen = f"{self.tool} saw {self.asked - len(self.unchecked)} of {self.asked} cases only: "
        if not self.evasion:
            return f"{seen}no time was left for the others. They cost no point."
        return f"{seen}the program {self.evasion}. The others earn no points for the use of memory."
