"""What a program told of one operation, and of the end of a case before its last one."""

from __future__ import annotations

import signal
import struct
from collections import Counter
from dataclasses import dataclass, field

from grader.frames import Frame
from reference.delta import applied, length_after, whole

__all__ = ["Fault", "PlayedStep", "fault_of", "step_of"]

_HEAD = struct.Struct("<iiQ")
_ADDRESS = 8
_DEEPEST = 32
"""Addresses of a stack; trouble.c sends no more."""

_RECURSION = 8
_MOST_BLOCKS = 1 << 19
"""Allocations of a case; inside.h."""


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


def step_of(frame: Frame, before: PlayedStep | None, *, is_whole: bool) -> PlayedStep:
    """What the frame of an operation tells. Raises `ValueError` or `struct.error` for a body that is not ours."""
    if is_whole:
        delta, length = whole(frame.body), len(frame.body)
    else:
        delta, length = frame.body, length_after(frame.body, before.length if before is not None else 0)
    heap = (frame.allocations, frame.frees, frame.bad_frees, frame.broken, frame.live)
    if max(frame.allocations, frame.frees, frame.live) > _MOST_BLOCKS:
        raise ValueError("more blocks than there can be")
    return PlayedStep(delta, before, length, *heap)


def fault_of(frame: Frame) -> Fault:
    """What the frame of a bad end tells. Raises `struct.error` for a body that is not ours."""
    first, second, address = _HEAD.unpack_from(frame.body)
    depth = min((len(frame.body) - _HEAD.size) // _ADDRESS, _DEEPEST)
    return Fault(frame.operation, first, address, struct.unpack_from(f"<{depth}Q", frame.body, _HEAD.size), second)
