"""What the harness of C programs reports of a case: allocations that were misused or lost, signals, exits, stacks.

This module decodes the bodies of BLOCK and REFUSED frames (harness/frames.c), and describes each misuse of memory and
the end of a case in words.
"""

from __future__ import annotations

import os
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from grader.core.judgement import Difference
from grader.core.verdict import SourceLine, Verdict
from grader.runtime.native.symbolize import Lines
from grader.runtime.protocol import COUNTED, NO_TIME, Comparison, Ending, Played, PlayedStep, Replayed

ALLOCATED = "allocated"
"""Tag of a difference: a call that must fail allocated memory."""

RELEASED_WRONGLY = "released-wrongly"
"""Tag of a difference: memory was released that must not be released."""

DAMAGED = "damaged"
"""Tag of a difference: something was written outside of allocations."""

UNKNOWN, HELD = -1, -2
"""Values instead of an operation's number: not known, or none because something still points to the allocation."""


class HeapEvent(IntEnum):
    """What happened to an allocation."""

    BAD_FREE = 1
    BROKEN = 2
    LIVE = 3
    TOO_SMALL = 4
    FAILED = 5
    SCRATCH = 6
    UNFILLED = 7
    USED_AFTER_FREE = 8
    """This event occurs only in a build that reports lines."""


@dataclass(frozen=True, slots=True)
class Misuse:
    """A way to misuse memory, in the runtime's words."""

    kind: str
    """The word for the misuse in findings and mistakes."""
    words: str
    """What the call does. {size}, {number}, {made} and {freed} are replaced by facts about the allocation."""
    explains_state: bool = False
    """Whether the misuse probably caused a wrong state of the same call."""
    at_allocation: bool = False
    """Whether only the line that made the allocation is known, not the line that misused it."""


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """One allocation and what is wrong with it. Operations count from 0."""

    event: HeapEvent
    operation: int
    allocated_by: int
    size: int
    allocated_at: int
    caller: int
    freed_at: int = 0
    freed_by: int = UNKNOWN
    lost_by: int = UNKNOWN
    """The operation since which nothing points to the allocation, if traced; `HELD` if something still points to it."""
    number: int = 0
    """In bytes: how far inside the block a wrong release points, or how large an allocation that is too small should
    be."""
    misuse: Misuse | None = None
    """For `BAD_FREE`, `BROKEN` and `TOO_SMALL`: how the allocation was misused."""


_BODY = struct.Struct("<5i4x4Qq")

_FOREIGN = Misuse("free-foreign", "frees an address that malloc never returned", explains_state=True)
_OVERRUN = Misuse(
    "overrun", "writes past the end of an allocation of {size} bytes{made}", explains_state=True, at_allocation=True
)
_BAD_FREES = {
    1: Misuse("double-free", "frees {size} bytes{made} that were already freed{freed}", explains_state=True),
    2: Misuse(
        "free-inside",
        "frees an address inside an allocation of {size} bytes{made}, {number} bytes behind its start",
        explains_state=True,
    ),
    3: _FOREIGN,
    7: Misuse("free-pool", "frees the pool, which the caller owns", explains_state=True),
    8: Misuse("free-static", "frees a global or static variable"),
    9: Misuse("free-stack", "frees a local variable"),
}
_BROKEN = {
    4: Misuse(
        "underrun",
        "writes before the start of an allocation of {size} bytes{made}",
        explains_state=True,
        at_allocation=True,
    ),
    5: _OVERRUN,
    6: Misuse("write-after-free", "writes into {size} bytes{made} that were already freed{freed}"),
}
"""Misuses of `BAD_FREE` and of `BROKEN` events, by the values of `enum detail` in harness/inside.h."""
_TOO_SMALL = Misuse(
    "too-small",
    "uses an allocation of {size} bytes{made} that is too small: {number} bytes are needed",
    explains_state=True,
)


def block_event(body: bytes, operation: int) -> BlockEvent:
    """Decode the body of a BLOCK frame.

    Raises `struct.error` or `ValueError` for a body that the harness did not send.
    """
    event, detail, made_by, freed_by, lost_by, size, made_at, freed_at, caller, number = _BODY.unpack(body)
    return BlockEvent(
        event=HeapEvent(event),
        operation=operation,
        allocated_by=made_by,
        size=size,
        allocated_at=made_at,
        caller=caller,
        freed_at=freed_at,
        freed_by=freed_by,
        lost_by=lost_by,
        number=number,
        misuse=_misuse(HeapEvent(event), detail),
    )


def _misuse(event: HeapEvent, detail: int) -> Misuse | None:
    if event is HeapEvent.BAD_FREE:
        return _BAD_FREES.get(detail, _FOREIGN)
    if event is HeapEvent.BROKEN:
        return _BROKEN.get(detail, _OVERRUN)
    return _TOO_SMALL if event is HeapEvent.TOO_SMALL else None


_RECURSION = 8
_EXIT_NO_REPORT, EXIT_BAD_PLAN = 97, 100
"""Exit codes of the harness (inside.h)."""
_SI_KERNEL = 0x80  # the si_code by which Linux on x86-64 reports an address that cannot exist (not canonical)
_STACK_FULL = 1 << 16  # sent instead of a si_code; the address is then the number of bytes of stack in use
_USED_BITS, _ALL_ABOVE = 48, 0xFFFF  # 64-bit Arm reports the address itself: its upper bits are neither all 0 nor all 1
_FIRST_PAGE = 4096
_WAYS = {1: "exit", 2: "_exit", 3: "_Exit", 4: "quick_exit", 5: "abort"}
_JUMP = 6  # the last of calls.c's enum way


_OTHER_CRASHES: Mapping[int, str] = {
    signal.SIGABRT: "crash-abort",
    signal.SIGFPE: "crash-division",
    signal.SIGILL: "crash-trap",
    signal.SIGTRAP: "crash-trap",
}
"""By signal: the words by which known mistakes recognise crashes that no pointer causes."""


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
        """The return addresses that repeat many times in the stack, because a recursion filled it."""
        return tuple(sorted(address for address, times in Counter(self.stack).items() if times >= _RECURSION))

    @property
    def is_wild(self) -> bool:
        """Whether the address cannot exist: then the content of fresh or freed memory was used as a pointer."""
        outside = self.code == _SI_KERNEL or 0 < self.address >> _USED_BITS < _ALL_ABOVE
        return self.signal == signal.SIGSEGV and outside

    @property
    def place(self) -> tuple[int, ...]:
        """The stack by which lines are found.

        For a recursion it has only the repeated calls: where the recursion filled the stack is chance.
        """
        return (0, *self.calls_itself) if self.signal == signal.SIGSEGV and self.calls_itself else self.stack

    @property
    def detail(self) -> str:
        """The word by which known mistakes recognise the fault; "" for other faults, such as use of NULL."""
        if self.calls_itself:
            return "crash-recursion"
        if self.code == _STACK_FULL:
            return "crash-stack"
        return "crash-wild" if self.is_wild else _OTHER_CRASHES.get(self.signal, "")

    @property
    def words(self) -> str:
        """The signal in words, and the pointer that a wrong access followed."""
        name = _signal_name(self.signal)
        if self.signal != signal.SIGSEGV:
            return name
        if self.calls_itself:
            return f"{name}: it calls itself again and again until the stack is full"
        if self.code == _STACK_FULL:
            return f"{name}: the stack is full, for calls and their local variables take {self.address / 2**20:.0f} MB"
        if self.is_wild:
            return f"{name}: it follows a pointer that was never set, was freed, or was read beyond an end"
        place = "NULL" if self.address < _FIRST_PAGE else "a pointer to an address where no memory is"
        return f"{name}: it follows {place}"


class RefusedCall(NamedTuple):
    """A call of a function of libc that failed because the function is refused (libc_names.py)."""

    operation: int
    called_at: int
    """The return address of the call."""
    name: str


def refused_call(body: bytes, operation: int) -> RefusedCall:
    """Decode the body of a REFUSED frame.

    Raises `struct.error` or `ValueError` for a body that the harness did not send.
    """
    called_at, name = struct.unpack("<Q64s", body)
    called = name.rstrip(b"\0").decode("ascii")
    if not called.isidentifier():
        raise ValueError("no name of a function")
    return RefusedCall(operation, called_at, called)


class Remark(NamedTuple):
    """A report of undefined behaviour in one operation. `body` is the body of its frame (harness/faults.c)."""

    operation: int
    body: bytes


@dataclass(slots=True, eq=False, kw_only=True)
class NativeStep(PlayedStep):
    """One operation that returned: the record after it, and what it did to the heap."""

    allocations: int = 0
    frees: int = 0
    bad_frees: int = 0
    broken: int = 0
    live: int = 0

    def faults(self, *, refused: bool) -> tuple[Difference, ...]:
        """What the call did wrong with memory; how much a successful call allocates is not judged."""
        faults: list[Difference] = []
        if refused and self.allocations:
            counted = f"{self.allocations} allocation{'s' * (self.allocations > 1)}"
            needless = Difference(
                facet="failing",
                field="allocations in the refused call",
                expected="0",
                actual=str(self.allocations),
                sentence=f"the call made {counted} although it must fail",
                tags=frozenset({ALLOCATED, "kept" if self.frees < self.allocations else "freed-again"}),
            )
            faults.append(needless)
        if self.bad_frees:
            faults.append(_counted("wrong releases of memory", self.bad_frees, RELEASED_WRONGLY))
        if self.broken:
            faults.append(_counted("allocations written outside their bounds", self.broken, DAMAGED))
        return tuple(faults)


def _counted(field_name: str, count: int, tag: str) -> Difference:
    return Difference(facet="heap", field=field_name, expected="0", actual=str(count), tags=frozenset({tag, COUNTED}))


@dataclass(slots=True)
class NativePlayed(Played):
    """Everything that was reported of one case."""

    steps: list[NativeStep] = field(default_factory=list)
    events: list[BlockEvent] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    """Undefined behaviour, if the program was built to report it."""
    refused: list[RefusedCall] = field(default_factory=list)
    """The first refused call from each place."""
    lines: bytes | None = None
    """The path and the stores of one operation (see lines.py), if the program was built to report them."""
    fault: Fault | None = None
    left: Fault | None = None
    """How the program left the call, if it did: `signal` is a value of `enum way` (calls.c), `code` the exit status."""
    fault_lines: tuple[SourceLine, ...] = ()
    """The student's lines on the stack of `left` or `fault`, if they were searched for."""
    hung: bool = False
    no_time: bool = False
    """Whether the case was not begun, or not finished, because the time for the submission was used up."""
    overflow: str = ""
    """Which bound the program exceeded before this case ended, so that its reports were no longer read; "" for none."""
    ended: bool = False
    """Whether an END frame came: the parent process of the case saw it end."""
    status: int = 0

    def stop_listening(self, why: str) -> None:
        """Note why the case's reports from here on were not read.

        The last operation counts as not observed, even if it seems done.
        """
        self.overflow, self.misfit = why, False
        del self.steps[len(self.case.trace.operations) - 1 :]

    @property
    def unexplained_end(self) -> str:
        """How the case ended, if something outside the program could have caused that, too; "" otherwise."""
        if self.no_time or self.hung or self.overflow:
            return ""
        if not self.ended:
            return "was not seen to its end"
        if self.fault is None and self.left is None and os.WIFSIGNALED(self.status):
            return f"was ended by signal {os.WTERMSIG(self.status)}"
        code = os.WEXITSTATUS(self.status)
        return f"gave up with exit code {code}" if code in (_EXIT_NO_REPORT, EXIT_BAD_PLAN) else ""

    @property
    def late(self) -> bool:
        """Whether the case ended because a limit of time was reached."""
        return self.hung or self.no_time

    @property
    def live(self) -> int:
        """The number of allocations left after the last operation that returned."""
        return self.steps[-1].live if self.steps else 0

    @property
    def hung_in(self) -> str:
        """The call that hung; "" if no call hung."""
        return self.next_call if self.hung else ""

    @property
    def ending(self) -> Ending | None:
        """How the case ended; None if all operations returned. If the grader ended the case, this says why."""
        call = self.next_call
        if not call:
            return None
        if self.overflow:
            return self._ending("stopped", f"the grader stops the program in or before {call}: {self.overflow}")
        late = Verdict.TIME_LIMIT_EXCEEDED
        if self.hung:
            return self._ending("hang", f"{call} does not come back within its time limit", verdict=late)
        if self.no_time:
            done = "finished" if self.steps else "run"
            sentence = f"not {done}: calls that are far too slow used up the time for all cases"
            return self._ending(NO_TIME, sentence, verdict=late)
        if self.left is not None:
            return self._ending("left", f"{call} {self._left_words}", "left-jump" if self.left.signal == _JUMP else "")
        if self.fault is not None:
            return self._ending("crash", f"{call} crashes ({self.fault.words})", self.fault.detail)
        if by_signal := self.status & 0x7F:
            detail = _OTHER_CRASHES.get(by_signal, "")
            return self._ending("crash", f"{call} crashes ({_signal_name(by_signal)})", detail)
        return self._ending("stopped", f"the program ended inside {call} without reporting why")

    def _ending(
        self, kind: str, sentence: str, detail: str = "", *, verdict: Verdict = Verdict.RUN_TIME_ERROR
    ) -> Ending:
        return Ending(kind=kind, verdict=verdict, sentence=sentence, lines=self.fault_lines, detail=detail)

    @property
    def _left_words(self) -> str:
        assert self.left is not None
        if self.left.signal == _JUMP:
            return "jumps with longjmp to a call that has already returned"
        way = _WAYS.get(self.left.signal, "exit")
        return f"ends the whole program: it calls {way}({self.left.code if way != 'abort' else ''})"


@dataclass(frozen=True, slots=True)
class NativeReplayed(Replayed):
    """All cases of a C program, and what it printed."""

    played: tuple[NativePlayed, ...]


def native_played(comparison: Comparison) -> NativePlayed:
    """Return the played case of a comparison, typed as one that this runtime played."""
    assert isinstance(comparison.played, NativePlayed)
    return comparison.played


def name_lines(played: Sequence[NativePlayed], lines_of: Callable[[Iterable[tuple[int, ...]]], Lines]) -> None:
    """Set `fault_lines` of the cases that ended badly; `lines_of` finds the lines on stacks of addresses."""
    faults = {number: played_case.left or played_case.fault for number, played_case in enumerate(played)}
    stacks = {number: fault.place for number, fault in faults.items() if fault is not None}
    lines = lines_of(stacks.values()) if stacks else {}
    for number, stack in stacks.items():
        played[number].fault_lines = lines.get(stack, ())


def _signal_name(number: int) -> str:
    try:
        return signal.strsignal(number) or signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
