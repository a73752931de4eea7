"""What was observed of a program that played cases: each operation that came back, and how each case ended."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from grader.core.case import Case
from grader.runtime.heap_events import BlockEvent
from reference.delta import applied

__all__ = ["Fault", "Played", "PlayedStep", "Remark", "Replayed"]

_RECURSION = 8
_EXIT_NO_REPORT, _EXIT_BAD_PLAN = 97, 100


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal, a time limit, or a way out of the program, with the stack of addresses at that moment."""

    operation: int
    signal: int
    address: int
    stack: tuple[int, ...]
    code: int = 0
    """Why the signal came, as the kernel says (si_code)."""

    @property
    def calls_itself(self) -> tuple[int, ...]:
        """Return addresses that come again and again in the stack: those of a recursion that filled it."""
        return tuple(sorted(address for address, times in Counter(self.stack).items() if times >= _RECURSION))

    @property
    def place(self) -> tuple[int, ...]:
        """The stack by which lines are found. Where in a recursion the stack was full is chance: its calls are not."""
        return (0, *self.calls_itself) if self.signal == signal.SIGSEGV and self.calls_itself else self.stack


@dataclass(slots=True, eq=False)
class PlayedStep:
    """One operation that came back: what it did to the record, and to the heap."""

    delta: bytes
    before: PlayedStep | None
    length: int
    """Bytes of the record."""
    allocations: int = 0
    frees: int = 0
    bad_frees: int = 0
    broken: int = 0
    live: int = 0
    known: bytes | None = field(default=None, repr=False)
    """The whole record, once somebody asked for it, until it is forgotten."""

    @property
    def record(self) -> bytes:
        """The whole record. Most are never asked for: equal deltas of equal records make equal records."""
        unknown: list[PlayedStep] = []
        step: PlayedStep | None = self
        while step is not None and step.known is None:
            unknown.append(step)
            step = step.before
        record = b"" if step is None or step.known is None else step.known
        for one in reversed(unknown):
            record = applied(one.delta, record)
        self.known = record
        return record

    def forget(self) -> None:
        """Its record will hardly be asked for again; it can be made once more."""
        self.known = None


class Remark(NamedTuple):
    """What a program told of one operation besides its state, in the words of the build that told it."""

    operation: int
    body: bytes


@dataclass(slots=True)
class Played:
    """Everything one case reported."""

    case: Case
    steps: list[PlayedStep] = field(default_factory=list)
    events: list[BlockEvent] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    """Undefined behaviour, where the program was built to tell of it."""
    lines: bytes | None = None
    """What the last operation went through and stored, where the program was built to tell of it."""
    fault: Fault | None = None
    left: Fault | None = None
    """The program left the call; `signal` is calls.c's enum way, `code` the exit status."""
    misfit: bool = False
    hung: bool = False
    no_time: bool = False
    """It was not begun, or not brought to its end, because all the time for the submission was used up."""
    overflow: str = ""
    """What the program did too much of before this case came to its end, so that nobody listened any more."""
    ended: bool = False
    """An END frame came: the parent of the case saw it end."""
    status: int = 0
    live: int = 0
    """Allocations that were left behind the last call, as the parent of the case knows."""
    cpu_seconds: float = 0.0

    def stop_listening(self, why: str) -> None:
        """Nothing that it reported from here on was read; so its last operation, should it seem done, was not seen."""
        self.overflow = why
        del self.steps[len(self.case.trace.operations) - 1 :]

    @property
    def unexplained_end(self) -> str:
        """What somebody outside the program could have done to it as well."""
        if self.no_time or self.hung or self.overflow:
            return ""
        if not self.ended:
            return "was not seen to its end"
        if self.fault is None and self.left is None and os.WIFSIGNALED(self.status):
            return f"was ended by signal {os.WTERMSIG(self.status)}"
        code = os.WEXITSTATUS(self.status)
        return f"gave up with exit code {code}" if code in (_EXIT_NO_REPORT, _EXIT_BAD_PLAN) else ""

    @property
    def hung_in(self) -> str:
        """The call that it hung in; "" when it did not hang."""
        operations = self.case.trace.operations
        return operations[len(self.steps)].name if self.hung and len(self.steps) < len(operations) else ""

    @property
    def complete(self) -> bool:
        """Did every operation come back?"""
        return len(self.steps) == len(self.case.trace.operations)


@dataclass(frozen=True, slots=True)
class Replayed:
    """All cases, and what the program printed."""

    played: tuple[Played, ...]
    output: bytes
    cpu_seconds: float

    @property
    def unexplained_end(self) -> str:
        """A case that ended as no program should and any program may, when somebody else ends it; "" without one."""
        return next((f"case {one.case.name} {why}" for one in self.played if (why := one.unexplained_end)), "")
