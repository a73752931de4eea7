"""Play cases on a built program and take down what it reports: the frames, and what they mean.

Their layout is that of drivers/frames.c. Student code shares the driver's process, so nothing that
comes back is believed further than it goes: frames of one case cannot reach into another, a stream that stops is a
finding about the case in which it stopped, and states are judged elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from grader.blocks import BlockEvent, Event
from grader.errors import DriverError, TooBusy
from grader.frames import Frame, Frames, Kind
from grader.grammar import Case
from grader.lab import Program
from grader.plan import plan
from grader.sandbox import RUN_LIMITS, Workspace
from reference.delta import applied, length_after, whole
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

_TOTAL_SECONDS = 10.0  # for all cases; right programs need a tenth of a second
_TRACING_SECONDS = 2.0
_SILENT_SECONDS = 2.0  # the harness says something after every operation, and after every hang
_MOST_PROCESSES = 3
_MOST_OUTPUT = 2000
_EXIT_NO_REPORT, _EXIT_BAD_PLAN = 97, 100
_HUNG, _WITHOUT_TIME = 1, 2
_RECURSION = 8


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
        return tuple(sorted(address for address in set(self.stack) if self.stack.count(address) >= _RECURSION))

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
    """The whole record, once somebody asked for it."""

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
            one.known = record = applied(one.delta, record)
        return record


@dataclass(slots=True)
class Played:
    """Everything one case reported."""

    case: Case
    steps: list[PlayedStep] = field(default_factory=list)
    events: list[BlockEvent] = field(default_factory=list)
    undefined: list[Frame] = field(default_factory=list)  # read by grader.advise
    lines: Frame | None = None  # read by grader.wherefrom
    fault: Fault | None = None
    left: Fault | None = None
    """The program left the call; `signal` is calls.c's enum way, `code` the exit status."""
    misfit: bool = False
    hung: bool = False
    no_time: bool = False
    """It was not begun, or not brought to its end, because all the time for the submission was used up."""
    ended: bool = False
    """An END frame came: the parent of the case saw it end."""
    status: int = 0
    cpu_seconds: float = 0.0

    @property
    def odd(self) -> str:
        """What somebody outside the program could have done to it as well."""
        if self.no_time or self.hung:
            return ""
        if not self.ended:
            return "was not seen to its end"
        if self.fault is None and self.left is None and os.WIFSIGNALED(self.status):
            return f"was ended by signal {os.WTERMSIG(self.status)}"
        code = os.waitstatus_to_exitcode(self.status)
        return f"gave up with exit code {code}" if code in (_EXIT_NO_REPORT, _EXIT_BAD_PLAN) else ""

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
    left = list(range(len(cases)))
    output, spent = b"", 0.0
    planned = partial(plan, cases, codes=codes, settings=settings, failing=failing)
    for _ in range(_MOST_PROCESSES):
        token = secrets.randbits(64)
        total = min(_TRACING_SECONDS if tracing or lines else _TOTAL_SECONDS, work.budget.cpu)
        done = work.run(
            lambda ends: [f"./{program.place(work)}", *map(str, ends)],
            limits=replace(
                RUN_LIMITS,
                wall_seconds=max(RUN_LIMITS.wall_seconds, 0.5 * len(left)),
                silent_seconds=_SILENT_SECONDS,
                silent_start_seconds=_SILENT_SECONDS,
            ),
            feeds=[planned(left, token=token, total=total, tracing=tracing, lines=lines, confined=work.confined)],
            channels=1,
        )
        if done.exit_code == _EXIT_BAD_PLAN:
            raise DriverError("the driver could not read its plan or had no memory")
        if done.timed_out and not done.silent:
            raise TooBusy("the machine is too busy: the cases were not done in minutes, although no call was slow")
        begun: list[int] = []
        finished = False
        for frame in Frames(done.channels[0], token):
            finished |= frame.kind == Kind.DONE
            if frame.kind == Kind.BEGIN and frame.case in left[left.index(begun[-1]) if begun else 0 :]:
                begun.append(frame.case)
            if begun and frame.case == begun[-1]:  # nothing that comes later belongs to an earlier case
                with contextlib.suppress(struct.error, ValueError):  # a body that is none of ours says nothing
                    _take_down(played, frame)
        output += done.stdout[:_MOST_OUTPUT] + done.stderr[:_MOST_OUTPUT]  # a flood of one hides not the other
        spent += done.cpu_seconds
        left = [number for number in left if number not in begun]
        if finished or done.silent or work.budget.empty:
            for number in left + [number for number in begun[-1:] if not played[number].ended]:
                played[number].no_time = True
            break
        if not left:
            break
    return Replayed(played=tuple(played), output=output, cpu_seconds=spent)


def _take_down(played: list[Played], frame: Frame) -> None:
    one = played[frame.case]
    match frame.kind:
        case Kind.BEGIN:
            played[frame.case] = Played(one.case)  # a second attempt replaces the first
        case Kind.STEP | Kind.DELTA if frame.operation == len(one.steps):
            before = one.steps[-1] if one.steps else None
            if frame.kind == Kind.STEP:
                delta, length = whole(frame.body), len(frame.body)
            else:
                delta, length = frame.body, length_after(frame.body, before.length if before is not None else 0)
            heap = (frame.allocations, frame.frees, frame.bad_frees, frame.broken, frame.live)
            one.steps.append(PlayedStep(delta, before, length, *heap))
        case Kind.BLOCK:
            one.events.append(BlockEvent.read(frame.body, frame.operation))
        case Kind.UNDEFINED:
            one.undefined.append(frame)
        case Kind.LINES:
            one.lines = frame
        case Kind.FAULT:
            one.fault = _fault(frame)
        case Kind.LEFT:
            one.left = _fault(frame)
        case Kind.MISFIT:
            one.misfit = True
        case Kind.END:
            status, hung, microseconds = struct.unpack("<iiq", frame.body)
            one.ended, one.status, one.hung, one.no_time = True, status, hung == _HUNG, hung == _WITHOUT_TIME
            one.cpu_seconds = microseconds / 1e6


def _fault(frame: Frame) -> Fault:
    first, second, address = struct.unpack_from("<iiQ", frame.body)
    stack = struct.unpack_from(f"<{(len(frame.body) - 16) // 8}Q", frame.body, 16)
    return Fault(frame.operation, first, address, stack, second)
