"""Play cases on a built program and record what it reports: the frames, and what they mean.

The layout of the frames is that of harness/frames.c. Student code shares the driver's process, so trust in a report is
limited: frames of one case cannot affect another case, a stream that stops is a finding about the case in which it
stopped, and states are judged elsewhere.
"""

from __future__ import annotations

import secrets
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from grader.core.case import Case
from grader.core.errors import DriverError, TooBusy
from grader.core.verdict import Visibility
from grader.runtime.native.block_reports import block_event
from grader.runtime.native.driver import Driver
from grader.runtime.native.native_played import Fault, NativePlayed, NativeReplayed, NativeStep, Remark
from grader.runtime.native.native_program import NativeProgram
from grader.runtime.native.plan import plan
from grader.runtime.native.wire import Frame, Frames, Kind
from grader.runtime.visibility import by_visibility
from grader.system.budget import TIME_LIMITS, Budget
from grader.system.process import MOST_CHANNEL, Completed
from grader.system.process_tree import MOST_MEMORY, MOST_PROCESSES
from grader.system.sandbox import RUN_LIMITS, Workspace

_STARTING_SECONDS = 1.0  # in addition; the harness ends the cases when their time is used up
_MOST_PROCESSES = 3
_TOO_LARGE = f"it takes more than {MOST_MEMORY >> 20} MB of memory, or has more than {MOST_PROCESSES} processes"
_TOO_MUCH = (
    f"it sends the grader more than {MOST_CHANNEL // 1_000_000} MB, or more messages than ten for each operation, a "
    "thousand for each case and 20,000 besides"
)
_MOST_OUTPUT = 2000
_EXIT_BAD_PLAN = 100
_HUNG, _WITHOUT_TIME = 1, 2
_HEAD = struct.Struct("<iiQ")
_ADDRESS = 8
_DEEPEST = 32
"""The most addresses of a stack; faults.c sends no more."""
_MOST_BLOCKS = 1 << 19
"""The most allocations of a case; see inside.h."""
_MOST_EVENTS = 1000
"""Of one case: the most reports on its allocations of each kind, of which heap.c reports no more losses."""
_MANY_EVENTS, _FEW_EVENTS = 10_000, 10
"""After so many reports on allocations a case has at most a few of each kind. Each can become a finding: to judge and
record 270,000 took 15 s and 400 MB. Of 300 wrong programs none reports 5,200."""
_EVENT = 4
"""The bytes of a report that say of which kind it is."""
_MOST_OF_LINES, _MOST_OF_A_PLACE = 1 << 17, 1 << 13
"""The most bytes of one message of lines.c, and of one on undefined behaviour (faults.c)."""


def replay(
    work: Workspace,
    program: NativeProgram,
    cases: Sequence[Case],
    *,
    driver: Driver,
    failing: Sequence[int] = (),
    tracing: bool = False,
    lines: bool = False,
) -> NativeReplayed:
    """Run all cases natively, one forked process each. Raises `DriverError` when the grader's own side breaks.

    `failing`: for each case which allocation fails, see harness.c. With `tracing` no states are reported; instead, for
    memory that was never freed, the operation since which nothing points to it. With `lines` a program that was built
    to report lines does so (`Played.lines`). If the whole program ends in the middle, the cases that had not begun get
    another process. Raises `TooBusy` when the machine is so busy that the program had to be ended although it worked.
    """
    played = [NativePlayed(case) for case in cases]
    output, spent = b"", 0.0
    limits = work.budget.limits
    planned = partial(plan, cases, driver=driver, failing=failing, limits=limits, tracing=tracing, lines=lines)
    for numbers in by_visibility(cases, range(len(cases))):
        if any(played_case.no_time for played_case in played):
            for number in numbers:
                played[number].no_time = True
            break
        hanging = {played_case.hung_in for played_case in played if played_case.hung_in}
        total = (limits.second_replay if tracing or lines else limits.replay) - spent
        run = partial(_run, work, program, planned=partial(planned, hanging=hanging), total=total)
        printed, seconds = _played_together(played, numbers, run, work.budget)
        spent += seconds
        if cases[numbers[0]].visibility is Visibility.PUBLIC:  # output of a hidden case would reveal it
            output = printed
    return NativeReplayed(played=tuple(played), output=output, cpu_seconds=spent)


def _run(
    work: Workspace,
    program: NativeProgram,
    left: Sequence[int],
    token: int,
    *,
    planned: Callable[..., bytes],
    total: float,
) -> Completed:
    """Run one process for the cases that are left."""
    return work.run(
        lambda ends: [f"./{program.place(work)}", *map(str, ends)],
        limits=replace(
            RUN_LIMITS,
            wall_seconds=max(RUN_LIMITS.wall_seconds, 0.5 * len(left)),
            silent_seconds=work.budget.limits.silent,
            silent_start_seconds=work.budget.limits.silent,
            own_seconds=max(0.1, min(total + _STARTING_SECONDS, work.budget.cpu)),
        ),
        feeds=[planned(left, token=token, total=min(total, work.budget.cpu), confined=work.confined)],
        channels=1,
    )


def _played_together(
    played: list[NativePlayed], numbers: Sequence[int], run: Callable[[Sequence[int], int], Completed], budget: Budget
) -> tuple[bytes, float]:
    """Play the cases with these numbers, which may share a process. Return what was printed, and the CPU seconds."""
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
        output += done.stdout[:_MOST_OUTPUT] + done.stderr[:_MOST_OUTPUT]  # a flood on one does not hide the other
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


def _listen(played: list[NativePlayed], left: Sequence[int], frames: Iterable[Frame]) -> tuple[list[int], bool]:
    """Record what one process reports. Return the cases that it began, in order, and whether it finished all."""
    places = {number: place for place, number in enumerate(left)}
    begun: list[int] = []
    finished = False
    events, of_case, most = sum(len(played_case.events) for played_case in played), Counter[bytes](), _MOST_EVENTS
    for frame in frames:
        finished |= frame.kind == Kind.DONE
        now = begun[-1] if begun else left[0]
        if frame.kind == Kind.BEGIN and places.get(frame.case, -1) >= places[now] and frame.case not in begun[-1:]:
            begun.append(frame.case)
        if begun and frame.case == begun[-1]:  # nothing that comes later belongs to an earlier case
            if frame.kind == Kind.BEGIN:
                of_case.clear()
                most = _MOST_EVENTS if events < _MANY_EVENTS else _FEW_EVENTS
            if frame.kind == Kind.BLOCK:
                events += 1
                of_case[frame.body[:_EVENT]] += 1
                if of_case[frame.body[:_EVENT]] > most:
                    continue
            try:
                _take_down(played, frame)
            except (struct.error, ValueError):  # a body that the harness did not send is ignored
                continue
    return begun, finished


def _take_down(played: list[NativePlayed], frame: Frame) -> None:
    played_case = played[frame.case]
    operations = len(played_case.case.trace.operations)
    match frame.kind:
        case Kind.BEGIN:
            played[frame.case] = NativePlayed(played_case.case)  # a second attempt replaces the first
        case Kind.STEP if frame.operation == len(played_case.steps) < operations:
            played_case.steps.append(_step_of(frame))
        case Kind.BLOCK if -1 <= frame.operation < operations:
            played_case.events.append(block_event(frame.body, frame.operation))
        case Kind.UNDEFINED if len(played_case.remarks) < _MOST_EVENTS and len(frame.body) <= _MOST_OF_A_PLACE:
            played_case.remarks.append(Remark(frame.operation, frame.body))
        case Kind.LINES if played_case.lines is None and len(frame.body) <= _MOST_OF_LINES:  # not that of a later crash
            played_case.lines = frame.body
        case Kind.FAULT:
            played_case.fault = _fault_of(frame)
        case Kind.LEFT:
            played_case.left = _fault_of(frame)
        case Kind.MISFIT:
            played_case.misfit = True
        case Kind.END:
            status, hung, microseconds = struct.unpack("<iiq", frame.body)
            played_case.ended, played_case.status = True, status
            played_case.hung, played_case.no_time = hung == _HUNG, hung == _WITHOUT_TIME
            played_case.cpu_seconds = min(max(0.0, microseconds / 1e6), TIME_LIMITS.replay)  # whatever it says


def _step_of(frame: Frame) -> NativeStep:
    """Decode the frame of an operation. Raises `ValueError` for a frame that the harness did not send."""
    if max(frame.allocations, frame.frees, frame.live) > _MOST_BLOCKS:
        raise ValueError("more blocks than there can be")
    return NativeStep(
        record=frame.body,
        allocations=frame.allocations,
        frees=frame.frees,
        bad_frees=frame.bad_frees,
        broken=frame.broken,
        live=frame.live,
    )


def _fault_of(frame: Frame) -> Fault:
    """Decode the frame of a bad end. Raises `struct.error` for a body that the harness did not send."""
    first, second, address = _HEAD.unpack_from(frame.body)
    depth = min((len(frame.body) - _HEAD.size) // _ADDRESS, _DEEPEST)
    return Fault(frame.operation, first, address, struct.unpack_from(f"<{depth}Q", frame.body, _HEAD.size), second)
