"""Play cases on a built program and take down what it reports: the frames, and what they mean.

Their layout is that of drivers/frames.c. Student code shares the driver's process, so nothing that
comes back is believed further than it goes: frames of one case cannot reach into another, a stream that stops is a
finding about the case in which it stopped, and states are judged elsewhere.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from grader.blocks import BlockEvent, Event
from grader.budget import Budget
from grader.errors import DriverError, TooBusy
from grader.frames import Frame, Frames, Kind
from grader.grammar import Case
from grader.heard import Fault, PlayedStep, fault_of, step_of
from grader.lab import Program
from grader.plan import apart, plan
from grader.process import MOST_CHANNEL, Completed
from grader.sandbox import RUN_LIMITS, Workspace
from grader.silence import MOST_MEMORY, MOST_PROCESSES
from grader.verdict import Visibility
from reference.operation import Trace

__all__ = [
    "BlockEvent",
    "Event",
    "Fault",
    "Played",
    "PlayedStep",
    "Replayed",
    "replay",
]

_TOTAL_SECONDS = 5.0  # for all cases; right programs need a tenth of a second
_TRACING_SECONDS = 2.0
_STARTING_SECONDS = 1.0  # besides; the harness ends the cases when their time is used up
_SILENT_SECONDS = 2.0  # the harness says something after every operation, and after every hang
_MOST_PROCESSES = 3
_TOO_LARGE = f"it takes more than {MOST_MEMORY >> 20} MB of memory, or has more than {MOST_PROCESSES} processes"
_TOO_MUCH = (
    f"it sends the grader more than {MOST_CHANNEL // 1_000_000} MB, or more messages than ten for each operation, a "
    "thousand for each case and 20,000 besides"
)
_MOST_OUTPUT = 2000
_EXIT_NO_REPORT, _EXIT_BAD_PLAN = 97, 100
_HUNG, _WITHOUT_TIME = 1, 2
_MOST_EVENTS, _MOST_LIVE = 1000, 1000
"""Of one case: what went wrong with its allocations, and those that were never freed, of which heap.c tells no more."""
_MOST_OF_LINES, _MOST_OF_A_PLACE = 1 << 17, 1 << 13
"""Bytes of one message of lines.c, and of one of undefined.c."""


@dataclass(slots=True)
class Played:
    """Everything one case reported."""

    case: Case
    steps: list[PlayedStep] = field(default_factory=list)
    events: list[BlockEvent] = field(default_factory=list)
    undefined: list[Frame] = field(default_factory=list)  # read by grader.advise
    lines: Frame | None = None  # read by grader.lines
    fault: Fault | None = None
    left: Fault | None = None
    """The program left the call; `signal` is calls.c's enum way, `code` the exit status."""
    misfit: bool = False
    hung: bool = False
    no_time: bool = False
    """It was not begun, or not brought to its end, because all the time for the submission was used up."""
    unheard: str = ""
    """What the program did too much of before this case came to its end, so that nobody listened any more."""
    ended: bool = False
    """An END frame came: the parent of the case saw it end."""
    status: int = 0
    live: int = 0
    """Allocations that were left behind the last call, as the parent of the case knows."""
    cpu_seconds: float = 0.0

    def stop_listening(self, why: str) -> None:
        """Nothing that it reported from here on was read; so its last operation, should it seem done, was not seen."""
        self.unheard = why
        del self.steps[len(self.case.trace.operations) - 1 :]

    @property
    def odd(self) -> str:
        """What somebody outside the program could have done to it as well."""
        if self.no_time or self.hung or self.unheard:
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
    def odd(self) -> str:
        """A case that ended as no program should and any program may, when somebody else ends it; "" without one."""
        return next((f"case {one.case.name} {why}" for one in self.played if (why := one.odd)), "")


def replay(
    work: Workspace,
    program: Program,
    cases: Sequence[Case],
    *,
    codes: dict[str, int],
    settings: Callable[[Trace], tuple[int, ...]],
    failing: Sequence[int] = (),
    tracing: bool = False,
    lines: bool = False,
) -> Replayed:
    """Run all cases natively, one forked process each. Raises `DriverError` when our own side breaks.

    `failing`: for each case which allocation fails, see harness.c. With `tracing` no states come back, but since when
    nothing points to memory that was never freed. With `lines` a program that tells of them does (`Played.lines`).
    Should the whole program end in the middle, the cases that had not begun get another one. Raises `TooBusy` when
    the machine is so busy that it had to be ended although it worked.
    """
    played = [Played(case) for case in cases]
    output, spent = b"", 0.0
    planned = partial(plan, cases, codes=codes, settings=settings, failing=failing, tracing=tracing, lines=lines)
    for numbers in apart(cases, range(len(cases))):
        if any(one.no_time for one in played):
            for number in numbers:
                played[number].no_time = True
            break
        hanging = {one.hung_in for one in played if one.hung_in}
        total = (_TRACING_SECONDS if tracing or lines else _TOTAL_SECONDS) - spent
        run = partial(_run, work, program, planned=partial(planned, hanging=hanging), total=total)
        said, seconds = _played_together(played, numbers, run, work.budget)
        spent += seconds
        if cases[numbers[0]].visibility is Visibility.PUBLIC:  # what is printed in a hidden one would tell what it asks
            output = said
    return Replayed(played=tuple(played), output=output, cpu_seconds=spent)


def _run(
    work: Workspace, program: Program, left: Sequence[int], token: int, *, planned: Callable[..., bytes], total: float
) -> Completed:
    """One process for what is left of the cases."""
    return work.run(
        lambda ends: [f"./{program.place(work)}", *map(str, ends)],
        limits=replace(
            RUN_LIMITS,
            wall_seconds=max(RUN_LIMITS.wall_seconds, 0.5 * len(left)),
            silent_seconds=_SILENT_SECONDS,
            silent_start_seconds=_SILENT_SECONDS,
            own_seconds=max(0.1, min(total + _STARTING_SECONDS, work.budget.cpu)),
        ),
        feeds=[planned(left, token=token, total=min(total, work.budget.cpu), confined=work.confined)],
        channels=1,
    )


def _played_together(
    played: list[Played], numbers: Sequence[int], run: Callable[[Sequence[int], int], Completed], budget: Budget
) -> tuple[bytes, float]:
    """Play the cases with these numbers, which may share a process: what was printed, and the CPU seconds."""
    left = list(numbers)
    output, spent = b"", 0.0
    for _ in range(_MOST_PROCESSES):
        token = secrets.randbits(64)
        done = run(left, token)
        if done.exit_code == _EXIT_BAD_PLAN:
            raise DriverError("the driver could not read its plan or had no memory")
        if done.timed_out and not done.silent:
            raise TooBusy("the machine is too busy: the cases were not done in minutes, although no call was slow")
        operations = sum(len(played[number].case.trace.operations) for number in left)
        frames = Frames(done.channels[0], token, operations, len(left))
        begun, finished = _listen(played, left, frames)
        output += done.stdout[:_MOST_OUTPUT] + done.stderr[:_MOST_OUTPUT]  # a flood of one hides not the other
        spent += done.cpu_seconds
        left = [number for number in left if number not in begun]
        if done.large or done.flooded or frames.too_many:
            for number in begun[-1:] + left:
                played[number].stop_listening(_TOO_LARGE if done.large else _TOO_MUCH)
            break
        if finished or done.silent or done.slow or budget.empty:
            for number in left + [number for number in begun[-1:] if not played[number].ended]:
                played[number].no_time = True
            break
        if not left:
            break
    return output, spent


def _listen(played: list[Played], left: Sequence[int], frames: Iterable[Frame]) -> tuple[list[int], bool]:
    """Take down what one program says of these cases: those that it began, in order; and was it through with all?"""
    places = {number: place for place, number in enumerate(left)}
    begun: list[int] = []
    finished = False
    for frame in frames:
        finished |= frame.kind == Kind.DONE
        now = begun[-1] if begun else left[0]
        if frame.kind == Kind.BEGIN and places.get(frame.case, -1) >= places[now] and frame.case not in begun[-1:]:
            begun.append(frame.case)
        if begun and frame.case == begun[-1]:  # nothing that comes later belongs to an earlier case
            try:
                _take_down(played, frame)
            except (struct.error, ValueError):  # a body that is none of ours says nothing
                continue
    return begun, finished


def _take_down(played: list[Played], frame: Frame) -> None:
    one = played[frame.case]
    operations = len(one.case.trace.operations)
    match frame.kind:
        case Kind.BEGIN:
            played[frame.case] = Played(one.case)  # a second attempt replaces the first
        case Kind.STEP | Kind.DELTA if frame.operation == len(one.steps) < operations:
            before = one.steps[-1] if one.steps else None
            one.steps.append(step_of(frame, before, is_whole=frame.kind == Kind.STEP))
        case Kind.BLOCK if -1 <= frame.operation < operations:
            event = BlockEvent.read(frame.body, frame.operation)
            if len(one.events) < _MOST_EVENTS + _MOST_LIVE * (event.event is Event.LIVE):
                one.events.append(event)
        case Kind.UNDEFINED if len(one.undefined) < _MOST_EVENTS and len(frame.body) <= _MOST_OF_A_PLACE:
            one.undefined.append(frame)
        case Kind.LINES if len(frame.body) <= _MOST_OF_LINES:
            one.lines = frame
        case Kind.FAULT:
            one.fault = fault_of(frame)
        case Kind.LEFT:
            one.left = fault_of(frame)
        case Kind.MISFIT:
            one.misfit = True
        case Kind.END:
            status, hung, microseconds = struct.unpack("<iiq", frame.body)
            one.ended, one.status, one.hung, one.no_time = True, status, hung == _HUNG, hung == _WITHOUT_TIME
            one.live = frame.live
            one.cpu_seconds = min(max(0.0, microseconds / 1e6), _TOTAL_SECONDS)
