"""What was observed of a program that played cases: each operation that returned, and how each case ended."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from grader.core.case import Case
from grader.runtime.heap_events import BlockEvent

__all__ = ["Fault", "Played", "PlayedStep", "Remark", "Replayed"]

_RECURSION = 8
_EXIT_NO_REPORT, _EXIT_BAD_PLAN = 97, 100


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal, a time limit, or an exit of the program, with the stack of addresses at that moment."""

    operation: int
    signal: int
    address: int
    stack: tuple[int, ...]
    code: int = 0
    """The kernel's reason for the signal (si_code)."""

    @property
    def calls_itself(self) -> tuple[int, ...]:
        """Return addresses that repeat many times in the stack: those of a recursion that filled it."""
        return tuple(sorted(address for address, times in Counter(self.stack).items() if times >= _RECURSION))

    @property
    def place(self) -> tuple[int, ...]:
        """The stack by which lines are found.

        For a recursion it has only the repeated calls: where the recursion filled the stack is chance.
        """
        return (0, *self.calls_itself) if self.signal == signal.SIGSEGV and self.calls_itself else self.stack


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlayedStep:
    """One operation that returned: the record after it, and what it did to the heap."""

    record: bytes
    allocations: int = 0
    frees: int = 0
    bad_frees: int = 0
    broken: int = 0
    live: int = 0


class Remark(NamedTuple):
    """What a program reported of one operation besides its state, in the format of the build that reported it."""

    operation: int
    body: bytes


@dataclass(slots=True)
class Played:
    """Everything one case reported."""

    case: Case
    steps: list[PlayedStep] = field(default_factory=list)
    events: list[BlockEvent] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    """Undefined behaviour, where the program was built to report it."""
    lines: bytes | None = None
    """The path and the stores of the instrumented operation, where the program was built to report them."""
    fault: Fault | None = None
    left: Fault | None = None
    """The program left the call; `signal` is a value of `enum way` in calls.c, `code` the exit status."""
    misfit: bool = False
    hung: bool = False
    no_time: bool = False
    """Whether it was not begun, or not brought to its end, because the time for the submission was used up."""
    overflow: str = ""
    """What the program did too much of before this case ended, so that its reports were no longer read."""
    ended: bool = False
    """Whether an END frame came: the parent process of the case saw it end."""
    status: int = 0
    cpu_seconds: float = 0.0

    def stop_listening(self, why: str) -> None:
        """Note why its reports from here on were not read.

        The last operation counts as not observed, even if it seems done.
        """
        self.overflow = why
        del self.steps[len(self.case.trace.operations) - 1 :]

    @property
    def unexplained_end(self) -> str:
        """How the case ended, where something outside the program could have caused that too; "" otherwise."""
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
        """The call that hung; "" when none did."""
        operations = self.case.trace.operations
        return operations[len(self.steps)].name if self.hung and len(self.steps) < len(operations) else ""

    @property
    def live(self) -> int:
        """The number of allocations left after the last operation that returned."""
        return self.steps[-1].live if self.steps else 0

    @property
    def complete(self) -> bool:
        """Whether every operation returned."""
        return len(self.steps) == len(self.case.trace.operations)


@dataclass(frozen=True, slots=True)
class Replayed:
    """All cases, and what the program printed."""

    played: tuple[Played, ...]
    output: bytes
    cpu_seconds: float

    @property
    def unexplained_end(self) -> str:
        """The first case with an unexplained end (see `Played.unexplained_end`), and that end; "" without one."""
        return next((f"case {one.case.name} {why}" for one in self.played if (why := one.unexplained_end)), "")
