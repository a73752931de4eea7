"""How far a program came under Valgrind, by the frames that fit its plan.

Under Valgrind all cases share a process with student code, which can find the token and send frames of its own. A frame
of a case that is not running, or of another operation than the next one, is ignored. So only cases and operations of
the plan are ever recorded, each once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grader.runtime.native.valgrind.divergence import Heap
from grader.runtime.native.wire import Frame, Kind
from grader.runtime.protocol import Place

_COUNT = struct.Struct("<i")


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """The progress by the frames that fitted so far."""

    planned: Mapping[int, int]
    """The cases in their order, each with the number of its operations."""
    token: int
    begun: list[int] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    counted: dict[Place, int] = field(default_factory=dict)
    """The number of errors that Valgrind counted in each operation that returned, also where it is 0."""
    did: dict[int, list[Heap]] = field(default_factory=dict)
    """By case, what each operation did to the heap."""
    left: dict[int, int] = field(default_factory=dict)
    """By case that ended, how many allocations the harness reports as left."""
    _running: int | None = None

    @property
    def at(self) -> Place:
        """The case and operation that the program reached."""
        return (self.begun[-1], len(self.did[self.begun[-1]])) if self.begun else (-1, 0)

    @property
    def through(self) -> bool:
        """Whether all cases came to their end."""
        return len(self.ended) == len(self.planned)

    def fits(self, place: Place, *, after: Place | None, leaks: bool) -> bool:
        """Whether the harness can have marked errors (or `leaks`) at this place, and the place comes after `after`."""
        case, operation = place
        if case not in self.did:
            return False
        is_last = operation == self.planned[case]
        was_there = is_last if leaks else bool(self.counted.get(place)) or place == self.at
        return was_there and (after is None or self._order(after) < self._order(place))

    def between(self, first: int, last: int) -> tuple[int, ...]:
        """Return the cases from `first` to `last`; none unless the program came from one to the end of the other."""
        if first not in self.did or last not in self.ended:
            return ()
        return tuple(self.begun[self.begun.index(first) : self.begun.index(last) + 1])

    def _order(self, place: Place) -> Place:
        return self.begun.index(place[0]), place[1]

    def take(self, frame: Frame) -> None:
        """Process one more frame; frames are passed in the order in which they came."""
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
            self.left[running] = did[-1][-1] if len(did) == self.planned[running] else frame.live
            self._running = None
        elif (
            frame.kind == Kind.STEP
            and frame.operation == len(did) < self.planned[running]
            and len(frame.body) == _COUNT.size  # the harness sends no other body
        ):
            self.counted[running, len(did)] = max(0, _COUNT.unpack(frame.body)[0])
            did.append((frame.allocations, frame.frees, frame.live))


def followed(frames: Iterable[Frame], planned: Mapping[int, int], token: int) -> RunProgress:
    """Return the progress of a program that was to run these cases."""
    course = RunProgress(planned=planned, token=token)
    for frame in frames:
        course.take(frame)
    return course
