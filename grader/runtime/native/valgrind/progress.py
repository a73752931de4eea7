"""How far a program came under Valgrind, by the frames that fit what it was to do.

There all cases share a process with student code, which can find the token and send frames of its own. A frame of a
case that is not running, or of another operation than the next one, says nothing; so whatever comes, only cases and
operations of the plan are ever spoken of, and each once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grader.runtime.native.valgrind.divergence import Heap
from grader.runtime.native.wire import Frame, Kind
from grader.runtime.source_lines import Place

__all__ = ["RunProgress", "followed"]

_COUNT = struct.Struct("<i")


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """What fitted so far."""

    planned: Mapping[int, int]
    """The cases in their order, each with the number of its operations."""
    token: int
    begun: list[int] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    counted: dict[Place, int] = field(default_factory=dict)
    """How many errors Valgrind counted in each operation that came back; those with none too."""
    did: dict[int, list[Heap]] = field(default_factory=dict)
    """By case what each operation did to the heap."""
    _running: int | None = None

    @property
    def at(self) -> Place:
        """Case and operation that it came to."""
        return (self.begun[-1], len(self.did[self.begun[-1]])) if self.begun else (-1, 0)

    @property
    def through(self) -> bool:
        """Did all cases come to their end?"""
        return len(self.ended) == len(self.planned)

    def fits(self, place: Place, *, after: Place | None, leaks: bool) -> bool:
        """Can Valgrind have been told there of errors, or of `leaks`, and not before it was `after` that place?"""
        case, operation = place
        if case not in self.did:
            return False
        is_last = operation == self.planned[case]
        was_there = is_last if leaks else bool(self.counted.get(place)) or place == self.at
        return was_there and (after is None or self._order(after) < self._order(place))

    def _order(self, place: Place) -> Place:
        return self.begun.index(place[0]), place[1]

    def take(self, frame: Frame) -> None:
        """One more frame, in the order in which they came."""
        running = self._running
        if frame.kind == Kind.BEGIN and running is None:
            coming = list(self.planned)[len(self.begun) :][:1]
            if coming == [frame.case]:
                self.begun.append(frame.case)
                self.did[frame.case] = []
                self._running = frame.case
        if running is None or frame.case != running:
            return
        did = self.did[running]
        if frame.kind == Kind.END:
            self.ended.add(running)
            self._running = None
        elif (
            frame.kind == Kind.STEP
            and frame.operation == len(did) < self.planned[running]
            and len(frame.body) == _COUNT.size  # another body is none of ours and says nothing
        ):
            self.counted[running, len(did)] = max(0, _COUNT.unpack(frame.body)[0])
            did.append((frame.allocations, frame.frees, frame.live))


def followed(frames: Iterable[Frame], planned: Mapping[int, int], token: int) -> RunProgress:
    """The course of a program that was to do these cases."""
    course = RunProgress(planned=planned, token=token)
    for frame in frames:
        course.take(frame)
    return course
