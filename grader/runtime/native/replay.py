"""Play cases on a built program: encode them, run it in the sandbox, and read and record what it reports.

The layout of the plan is that of harness/harness.c, the layout of the frames that of harness/frames.c. Student code
shares the driver's process, so it can find the token with which frames begin, and send frames of its own. Frames
of one case cannot affect another case, a stream that stops is a finding about the case in which it stopped, and states
are judged elsewhere. Reading costs at most one pass through the stream, and no more frames are read than the harness
alone would send.

Code that runs in a process can also search its memory, and can pass information on: by a pipe's size, or by the time
that it takes. So no process is ever given both public and hidden cases. What a program reports and prints in a public
case comes from a process that never held a hidden case.

Natively each case has a process of its own. One process for all cases would cost a third of that, but values outside
the restored variables would survive there: the stack, bytes after a static array, libc's own state. With one process,
programs passed that are wrong in a fresh process.
"""

from __future__ import annotations

import secrets
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.errors import DriverError
from grader.core.verdict import Visibility
from grader.runtime.native.native_played import (
    EXIT_BAD_PLAN,
    Fault,
    NativePlayed,
    NativeReplayed,
    NativeStep,
    Remark,
    block_event,
    refused_call,
)
from grader.runtime.native.project import Driver, NativeProgram
from grader.runtime.protocol import Walked
from grader.runtime.runs import by_visibility, printed_by
from grader.system.budget import TIME_LIMITS, TimeLimits
from grader.system.process import MOST_CHANNEL, Completed
from grader.system.process_tree import MOST_MEMORY, MOST_PROCESSES
from grader.system.sandbox import RUN_LIMITS, Limits, Workspace
from reference.operation import NULL, Argument, Trace

_FRAME = struct.Struct("<QIIiiIIIIII")

_FRAMES, _FRAMES_EACH, _FRAMES_OF_A_CASE = 20_000, 10, 1000
"""The most frames of a program: a base, more for each operation, and more for each case, for memory that is not freed
(heap.c reports no more). With some 280 cases, and 2,700 operations in them, no correct program sends over 9,000."""


class FrameKind(IntEnum):
    """Kinds of frames, as in inside.h."""

    BEGIN = 1
    STEP = 2
    END = 3
    FAULT = 4
    LEFT = 5
    BLOCK = 6
    MISFIT = 7
    DONE = 8
    UNDEFINED = 10
    LINES = 12
    SUMS = 13
    REFUSED = 14


class HarnessFrame(NamedTuple):
    """One frame as it was sent. It is a named tuple, because one grading has thousands."""

    kind: int
    body: bytes
    case: int
    operation: int
    attempt: int
    allocations: int
    frees: int
    bad_frees: int
    broken: int
    live: int


_KINDS = frozenset(FrameKind)


class Frames:
    """The frames in a stream of bytes. After bytes that are not a frame, reading goes on at the next token."""

    def __init__(self, stream: bytes, token: int, operations: int, cases: int = 0) -> None:
        """Read the `stream` of a program that plays this number of `operations` in this number of `cases`."""
        self.stream = stream
        self.token = token.to_bytes(8, "little")
        self.too_many = False
        """Whether there were more frames than the harness sends. Then reading stops after the allowed number."""
        self.most = _FRAMES + _FRAMES_EACH * operations + _FRAMES_OF_A_CASE * cases

    def __iter__(self) -> Iterator[HarnessFrame]:
        stream, token, size, most = self.stream, self.token, _FRAME.size, self.most
        find, unpack_from, whole = stream.find, _FRAME.unpack_from, len(stream)
        place = count = 0
        while (place := find(token, place)) >= 0:
            start = place + size
            if start > whole:
                return
            if count == most:
                self.too_many = True
                return
            count += 1
            _, kind, length, *rest = unpack_from(stream, place)
            end = start + length
            # a length that would cover other frames is forged; this check copies nothing
            if kind not in _KINDS or end > whole or find(token, start, end) >= 0:
                place += 1
                continue
            yield HarnessFrame(kind, stream[start:end], *rest)
            place = end


WATCH = -1
"""Used instead of the number of the allocation that fails: no allocation fails, and the harness reports each allocation
that is freed by the call that made it (`HeapEvent.SCRATCH`)."""

_MOST_ENCODINGS = 1024
_MAGIC = 0x504C414E
_MEMCHECK, _TRACE, _CONFINED, _LINES, _CLOSURE = 1, 2, 4, 8, 16
_SETTINGS = 8
_WORD = 4
_CALL, _ARGUMENT = struct.Struct("<4i"), struct.Struct("<iq")
_NULL, _NUMBER, _LIST = range(3)
"""The kinds of arguments in harness.c."""
_MICROSECONDS = 1_000_000


def plan(
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    token: int,
    driver: Driver,
    contracts: Mapping[int, bytes] | None = None,
    failing: Sequence[int] = (),
    hanging: Iterable[str] = (),
    limits: TimeLimits = TIME_LIMITS,
    total: float = TIME_LIMITS.replay,
    pace: float = 1.0,
    tracing: bool = False,
    lines: bool = False,
    confined: bool = False,
) -> bytes:
    """Encode the cases with these numbers as the driver reads them; under Valgrind each with its `contracts`.

    Raises `ValueError` unless they are all public or all hidden.
    `failing`: for each case which allocation fails, or with `lines` which operation to report; see harness.c.
    `hanging`: the calls that are known to hang. `limits`: for single operations. `total`: seconds for all of the cases.
    `pace`: how many times slower than a usual machine this one is.
    `confined`: the kernel can refuse system calls, so the harness gives them up before student code runs (rights.c).
    """
    if len({cases[number].visibility for number in numbers}) > 1:
        raise ValueError("public and hidden cases in one process")
    share = limits.hangs * len(numbers) / max(1, len(cases))  # shared by all cases of a submission
    mode = _MEMCHECK * bool(contracts) | _TRACE * tracing | _LINES * lines
    codes = driver.codes
    proven = sum(1 << codes[name] for name in set(hanging))
    limits = replace(limits, hangs=share)
    head = plan_head(
        token=token,
        mode=mode,
        limits=limits,
        total=total,
        pace=pace,
        cases=len(numbers),
        confined=confined,
        proven=proven,
    )
    parts = [head]
    for number in numbers:
        trace = cases[number].trace
        head = struct.pack("<3i", number, len(trace.operations), failing[number] if failing else 0)
        parts += [head, _encoded_once(trace, driver), (contracts or {}).get(number, b"")]
    return b"".join(parts)


def plan_head(
    *, token: int, mode: int, limits: TimeLimits, total: float, pace: float, cases: int, confined: bool, proven: int = 0
) -> bytes:
    """Encode what precedes the cases of a plan; `proven` has a bit for each call that is known to hang."""
    seconds = (limits.operation, limits.least_operation, limits.hangs, total)  # as "time" in harness.c
    times = [max(1, int(second * pace * _MICROSECONDS)) for second in seconds]
    return struct.pack("<iQiiiiiQi", _MAGIC, token, mode | _CONFINED * confined, *times, proven, cases)


_encodings: dict[tuple[int, int], tuple[Trace, Driver, bytes]] = {}
"""The encodings of traces, which are the same for every submission of a class. The keys are the identities of trace and
driver, because to hash a long trace takes time; the values keep both alive."""


def _encoded_once(trace: Trace, driver: Driver) -> bytes:
    """Encode a trace, or return its earlier encoding."""
    key = id(trace), id(driver)
    known = _encodings.get(key)
    if known is None:
        if len(_encodings) >= _MOST_ENCODINGS:
            _encodings.clear()
        known = _encodings[key] = trace, driver, encoded(trace, driver)
    return known[2]


def encoded(trace: Trace, driver: Driver) -> bytes:
    """Return the settings and operations of a trace in the format of a plan."""
    settings = driver.settings(trace)
    if len(settings) > _SETTINGS:
        raise ValueError(f"a driver gets at most {_SETTINGS} settings")
    codes, first = driver.codes, 0
    calls: list[bytes] = []
    arguments: list[bytes] = []
    lists = bytearray()
    for operation in trace.operations:
        count = len(operation.arguments)
        calls.append(_CALL.pack(codes[operation.name], operation.target or 0, first, count))
        arguments += [_encode(argument, lists) for argument in operation.arguments]
        first += count
    head = struct.pack(f"<{2 + _SETTINGS}i", first, len(lists) // _WORD, *settings, *[0] * (_SETTINGS - len(settings)))
    return b"".join([head, *calls, *arguments, lists])


def _encode(argument: Argument, lists: bytearray) -> bytes:
    """Encode an argument; the ints of a list, or the bytes of a text, are added to `lists`."""
    if isinstance(argument, int):
        return _ARGUMENT.pack(_NUMBER, argument)
    if argument is None or argument == NULL:
        return _ARGUMENT.pack(_NULL, 0)
    assert isinstance(argument, str | tuple)
    content = argument.encode() if isinstance(argument, str) else struct.pack(f"<{len(argument)}i", *argument)
    start, length = len(lists) // _WORD, len(argument if isinstance(argument, tuple) else content)
    lists += content + bytes(-len(content) % _WORD)
    return _ARGUMENT.pack(_LIST, start | length << 32)


_STARTING_SECONDS = 1.0  # added to the time of all cases: the harness itself ends them when that time is used up
_MOST_PROCESSES = 3
_TOO_LARGE = f"it takes more than {MOST_MEMORY >> 20} MB of memory, or has more than {MOST_PROCESSES} processes"
_TOO_MUCH = (
    f"it sends the grader more than {MOST_CHANNEL // 1_000_000} MB, or more messages than ten for each operation, a "
    "thousand for each case and 20,000 besides"
)
_HUNG, _WITHOUT_TIME = 1, 2
_HEAD = struct.Struct("<iiQ")
_ADDRESS = 8
_DEEPEST = 32
"""The most addresses of a stack; faults.c sends no more."""
_MOST_BLOCKS = 1 << 19
"""The most allocations of a case; see inside.h."""
_MOST_EVENTS = 1000
"""The most reports on allocations of each kind in one case; heap.c reports no more losses."""
_MANY_EVENTS, _FEW_EVENTS = 10_000, 10
"""After this many reports on allocations, only a few of each kind are read for each case. Each can become a finding: to
judge and record 270,000 took 15 s and 400 MB. Of 300 wrong programs, none reports 5,200."""
_EVENT = 4
"""The number of bytes at the start of a report on an allocation that say its kind."""
_MOST_OF_LINES, _MOST_OF_A_PLACE = 1 << 17, 1 << 13
"""The most bytes of one message of lines.c, and of one on undefined behaviour (faults.c)."""

_MOST_REFUSED = 16
"""The most places in a case from which refused calls are reported; calls.c reports no more."""


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

    `failing`: see `plan`. With `tracing` the harness reports no states, but for memory that was never freed the
    operation since which nothing points to it. With `lines` a program that was built to report lines reports them
    (`NativePlayed.lines`). If the whole program ends in the middle, another process plays
    the cases that had not begun. Raises `TooBusy` if the program was ended while it worked, as on a busy machine.
    """
    played = [NativePlayed(case) for case in cases]
    output, spent = b"", 0.0
    limits = work.budget.limits
    pace = work.budget.pace
    planned = partial(
        plan, cases, driver=driver, failing=failing, limits=limits, pace=pace, tracing=tracing, lines=lines
    )
    for numbers in by_visibility(cases, range(len(cases))):
        if any(played_case.no_time for played_case in played):
            for number in numbers:
                played[number].no_time = True
            break
        hanging = {played_case.hung_in for played_case in played if played_case.hung_in}
        total = (limits.second_replay if tracing or lines else limits.replay) - spent
        plan_of = partial(planned, hanging=hanging)
        printed, seconds = _played_together(work, program, played, numbers, plan_of=plan_of, total=total)
        spent += seconds
        if cases[numbers[0]].visibility is Visibility.PUBLIC:  # output of a hidden case would reveal it
            output = printed
    return NativeReplayed(played=tuple(played), output=output, cpu_seconds=spent)


def _played_together(
    work: Workspace,
    program: NativeProgram,
    played: list[NativePlayed],
    numbers: Sequence[int],
    *,
    plan_of: Callable[..., bytes],
    total: float,
) -> tuple[bytes, float]:
    """Play the cases with these numbers, which may share a process. Return what was printed, and the CPU seconds."""
    budget = work.budget
    left = list(numbers)
    output, spent = b"", 0.0
    for _ in range(_MOST_PROCESSES):
        token = secrets.randbits(64)
        limits = replace(
            RUN_LIMITS,
            wall_seconds=max(RUN_LIMITS.wall_seconds, 0.5 * len(left)),
            silent_seconds=budget.limits.silent,
            silent_start_seconds=budget.limits.silent,
            own_seconds=max(0.1, min(total + _STARTING_SECONDS, budget.cpu)),
        )
        feed = plan_of(left, token=token, total=min(total, budget.cpu), confined=work.confined)
        done = _run(work, program, feed, limits)
        output += printed_by(done)
        operations = sum(len(played[number].case.trace.operations) for number in left)
        frames = Frames(done.channels[0], token, operations, len(left))
        begun, finished = _listen(played, left, frames, budget.pace)
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


def _run(work: Workspace, program: NativeProgram, feed: bytes, limits: Limits) -> Completed:
    done = work.run(lambda ends: [f"./{program.place(work)}", *map(str, ends)], limits=limits, feeds=[feed], channels=1)
    if done.exit_code == EXIT_BAD_PLAN:
        raise DriverError("the driver could not read its plan or had no memory")
    return done


def _listen(
    played: list[NativePlayed], left: Sequence[int], frames: Iterable[HarnessFrame], pace: float
) -> tuple[list[int], bool]:
    """Record what one process reports. Return the cases that it began, in order, and whether it finished all."""
    places = {number: place for place, number in enumerate(left)}
    begun: list[int] = []
    finished = False
    events, of_case, most = sum(len(played_case.events) for played_case in played), Counter[bytes](), _MOST_EVENTS
    for frame in frames:
        finished |= frame.kind == FrameKind.DONE
        now = begun[-1] if begun else left[0]
        if frame.kind == FrameKind.BEGIN and places.get(frame.case, -1) >= places[now] and frame.case not in begun[-1:]:
            begun.append(frame.case)
        if begun and frame.case == begun[-1]:  # nothing that comes later belongs to an earlier case
            if frame.kind == FrameKind.BEGIN:
                of_case.clear()
                most = _MOST_EVENTS if events < _MANY_EVENTS else _FEW_EVENTS
            if frame.kind == FrameKind.BLOCK:
                events += 1
                of_case[frame.body[:_EVENT]] += 1
                if of_case[frame.body[:_EVENT]] > most:
                    continue
            try:
                _take_down(played, frame, pace)
            except (struct.error, ValueError):  # a body that the harness did not send is ignored
                continue
    return begun, finished


def _take_down(played: list[NativePlayed], frame: HarnessFrame, pace: float) -> None:
    played_case = played[frame.case]
    operations = len(played_case.case.trace.operations)
    match frame.kind:
        case FrameKind.BEGIN:
            played[frame.case] = NativePlayed(played_case.case)  # a second attempt replaces the first
        case FrameKind.STEP if frame.operation == len(played_case.steps) < operations:
            played_case.steps.append(_step_of(frame))
        case FrameKind.BLOCK if -1 <= frame.operation < operations:
            played_case.events.append(block_event(frame.body, frame.operation))
        case FrameKind.UNDEFINED if len(played_case.remarks) < _MOST_EVENTS and len(frame.body) <= _MOST_OF_A_PLACE:
            played_case.remarks.append(Remark(frame.operation, frame.body))
        case FrameKind.REFUSED if len(played_case.refused) < _MOST_REFUSED and 0 <= frame.operation < operations:
            played_case.refused.append(refused_call(frame.body, frame.operation))
        case FrameKind.LINES if (
            played_case.lines is None and len(frame.body) <= _MOST_OF_LINES
        ):  # a later crash sends another one
            played_case.lines = frame.body
        case FrameKind.FAULT:
            played_case.fault = _fault_of(frame)
        case FrameKind.LEFT:
            played_case.left = _fault_of(frame)
        case FrameKind.MISFIT:
            played_case.misfit = True
        case FrameKind.END:
            status, hung, microseconds = struct.unpack("<iiq", frame.body)
            played_case.ended, played_case.status = True, status
            played_case.hung, played_case.no_time = hung == _HUNG, hung == _WITHOUT_TIME
            seconds = microseconds / _MICROSECONDS / pace
            played_case.cpu_seconds = min(max(0.0, seconds), TIME_LIMITS.replay)  # a forged frame may say anything


def _step_of(frame: HarnessFrame) -> NativeStep:
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


def _fault_of(frame: HarnessFrame) -> Fault:
    """Decode the frame of a bad end. Raises `struct.error` for a body that the harness did not send."""
    first, second, address = _HEAD.unpack_from(frame.body)
    depth = min((len(frame.body) - _HEAD.size) // _ADDRESS, _DEEPEST)
    return Fault(frame.operation, first, address, struct.unpack_from(f"<{depth}Q", frame.body, _HEAD.size), second)


_CLOSURE_SECONDS = 3.0
"""The limit for the whole tour of a closure, which a right program finishes in less than a second."""


def walk(work: Workspace, program: NativeProgram, closure: Closure, driver: Driver) -> Walked:
    """Let a program walk through the closure of a small engine (harness/closure.c).

    Return the checksum of each state, or the state and call in which the program ended.
    """
    token = secrets.randbits(64)
    head = plan_head(
        token=token,
        mode=_CLOSURE,
        limits=work.budget.limits,
        total=_CLOSURE_SECONDS,
        pace=work.budget.pace,
        cases=1,
        confined=work.confined,
    )
    calls = encoded(Trace(operations=closure.calls), driver)
    feed = head + struct.pack("<3i", 0, len(closure.calls), len(closure.tour)) + calls + closure.tour.tobytes()
    limits = replace(RUN_LIMITS, own_seconds=max(0.1, min(_CLOSURE_SECONDS, work.budget.cpu)))
    done = _run(work, program, feed, limits)
    sums: array[int] | None = None
    last, fits = -1, True
    for frame in Frames(done.channels[0], token, 1):
        fits = fits and frame.kind != FrameKind.MISFIT
        last = frame.operation if frame.kind == FrameKind.FAULT else last
        if frame.kind == FrameKind.SUMS and len(frame.body) == 4 * len(closure):
            sums = array("I", frame.body)
    state, call = divmod(last, len(closure.calls)) if 0 <= last < len(closure) * len(closure.calls) else (0, 0)
    return Walked(sums=sums, fits=fits, state=state, call=call, cpu_seconds=done.cpu_seconds)
