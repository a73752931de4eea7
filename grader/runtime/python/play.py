"""Play cases on a submission: the records after each operation, and how cases ended."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grader.core.case import Case, Generated, listed, pack
from grader.core.errors import TooBusy
from grader.core.verdict import SourceLine, Verdict, Visibility
from grader.runtime.observation import NO_TIME, Ending, Played, PlayedStep, Replayed
from grader.runtime.protocol import Program
from grader.runtime.python.build import PythonProgram
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.process import PythonFrame, decoded, ending, frames, lines_of, run
from grader.runtime.runs import by_visibility
from grader.system.budget import Budget
from grader.system.process import Completed
from grader.system.sandbox import Workspace
from reference.operation import Operation
from reference.oracle import text_of

_MOST_PROCESSES = 3
_TOGETHER = 100
"""The number of random traces that share a process."""
_PLACE = struct.Struct(">I")
_MOST_OUTPUT = 2000
_MOST_DERIVING = 30.0
"""CPU seconds that all cases may take to be made what is judged; a right program's take a few."""


@dataclass(frozen=True, slots=True)
class DerivedStep:
    """An operation: the record that is judged, and the submission's lines behind the parts of its state."""

    record: dict[str, Any]
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the name that a part has in the state."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What pictures show besides; nothing of it is judged."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A case, as far as it can be judged."""

    steps: Sequence[DerivedStep]
    stopped: str = ""
    """Why the operation behind the last step cannot be judged; "" where all can."""
    lines: tuple[int, ...] = ()
    """The submission's lines that this is about."""


Derive = Callable[[Sequence[Operation], Sequence[Mapping[str, Any]]], Derived]
"""Makes the records that are judged of the operations of a case and the records that a program sent. These may be
anything: whatever is wrong with them is a step's or `Derived.stopped`, never an exception."""


@dataclass(slots=True)
class _Heard:
    """What one attempt at a case sent."""

    records: list[bytes] = field(default_factory=list)
    derive_trace: Callable[[int, bytes], bytes] | None = None
    """Returns the digest of a trace whose records are not what is judged."""
    digests: dict[int, bytes] = field(default_factory=dict)
    """Of random traces, by their places: SHA-256 of all their records."""
    error: dict[str, Any] | None = None
    asked: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    dropped: dict[str, Any] | None = None

    def take(self, frame: PythonFrame) -> None:
        if frame.kind == "S":
            self.records.append(frame.body)
        elif frame.kind == "T" and len(frame.body) >= _PLACE.size:
            (place,) = _PLACE.unpack_from(frame.body)
            records = memoryview(frame.body)[_PLACE.size :]
            if self.derive_trace is None:
                self.digests[place] = hashlib.sha256(records).digest()
            else:
                self.digests[place] = self.derive_trace(place, bytes(records))
        elif frame.kind == "X" and self.error is None:
            self.error = decoded(frame.body)
        elif frame.kind == "H":
            self.asked = decoded(frame.body)
        elif frame.kind == "N":
            self.dropped = decoded(frame.body)
        elif frame.kind == "E":
            self.end = decoded(frame.body)


def line_of(number: int, operations: Iterable[Operation]) -> dict[str, object]:
    """Return the message of a plan for a case."""
    return {"case": number, "operations": listed(operations)}


def _plan(number: int, case: Case) -> Iterator[dict[str, object]]:
    """Yield the messages of a plan for a case: random traces come in parts."""
    generated = case.generated
    if generated is None:
        yield line_of(number, case.trace.operations)
        return
    packed, lengths = generated.packed or tuple(map(pack, generated.traces)), [*map(len, generated.traces)]
    for first in range(0, len(packed), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        line = {"case": number, "first": first, "traces": packed[part], "lengths": lengths[part]}
        yield line if generated.every is None else {**line, "every": generated.every}


@dataclass(slots=True)
class _Deriving:
    """Derives records (see `Derive`), as long as there is time: its own, which the submission's budget does not pay."""

    derive: Derive
    file: str
    budget: Budget
    spent: float = 0.0

    def case(self, case: Case, records: Sequence[bytes]) -> tuple[list[PlayedStep], Ending | None]:
        """Return the steps of a case as they are judged; with an ending where one of them cannot be."""
        operations = case.trace.operations
        derived = self._derived(operations, [decoded(record) for record in records])
        if derived is None:
            return [], Ending(
                kind=NO_TIME, verdict=Verdict.TIME_LIMIT_EXCEEDED, sentence="not judged: no time was left"
            )
        steps = [PlayedStep(record=_canonical(step), lines=step.lines, notes=step.notes) for step in derived.steps]
        if not derived.stopped:
            return steps, None
        lines = tuple(SourceLine(file=self.file, line=line) for line in derived.lines)
        return steps, Ending(
            kind="stopped",
            verdict=Verdict.RUN_TIME_ERROR,
            sentence=f"{operations[len(steps)].name} cannot be judged: {derived.stopped}",
            lines=lines,
        )

    def trace(self, case: Case, place: int, records: bytes) -> bytes:
        """Return the digest of a random trace as it is judged; "" where it cannot be."""
        generated = case.generated
        sent = decoded(b'{"all":%b}' % records).get("all")
        if generated is None or place >= len(generated.traces) or not isinstance(sent, list):
            return b""
        whole = [record if isinstance(record, dict) else {} for record in sent]
        derived = self._derived(generated.traces[place], whole)
        if derived is None or derived.stopped:
            return b""
        return Generated.digest(map(_canonical, derived.steps), every=1)

    def _derived(self, operations: Sequence[Operation], records: Sequence[dict[str, Any]]) -> Derived | None:
        self.budget.check_wanted()
        if self.spent > _MOST_DERIVING:
            return None
        since = time.thread_time()
        derived = self.derive(operations, records)
        seconds = self.budget.own_seconds(since)
        self.spent += seconds
        self.budget.leave_out(seconds)
        return derived


def _canonical(step: DerivedStep) -> bytes:
    """The bytes of a derived record; none for one that is nested too deep to be written."""
    try:
        return text_of(step.record).encode()
    except RecursionError:
        return b""


def play(
    work: Workspace,
    program: Program,
    cases: Sequence[Case],
    *,
    driver: PythonDriver,
    derive: Derive | None = None,
) -> Replayed:
    """Play all cases, each in a process of its own. Raises `TooBusy` when the machine is too busy to tell anything.

    `derive` makes the records that are judged of those that the program sent.
    """
    budget = work.budget
    deriving = _Deriving(derive, driver.file, budget) if derive is not None else None
    heard: dict[int, _Heard] = {}
    output, spent = b"", 0.0
    modules = program.modules if isinstance(program, PythonProgram) else ()
    most, paid = _time_left(program, cases, budget), budget.paid
    budget.leave_out(most)
    for numbers in by_visibility(cases, range(len(cases))):
        left = list(numbers)
        for _ in range(_MOST_PROCESSES):
            if not left:
                break
            lines = [line for number in left for line in _plan(number, cases[number])]
            total = max(0.1, most - (budget.paid - paid))
            done = run(
                work,
                program.content,
                driver,
                lines,
                modules=modules,
                total=total,
            )
            if done.timed_out and not done.silent:
                raise TooBusy("the machine is too busy: the cases were not done in minutes, although no call was slow")
            spent += done.cpu_seconds
            begun = _listen(done, heard, {number: cases[number] for number in left}, deriving)
            if cases[numbers[0]].visibility is Visibility.PUBLIC:  # output of a hidden case would reveal it
                output += done.stdout[:_MOST_OUTPUT] + done.stderr[:_MOST_OUTPUT]
            left = [number for number in left if number not in begun]
    budget.traces = max(0.0, most - (budget.paid - paid))
    budget.leave_out(-budget.traces)
    file = driver.file
    slow = program.begins_slowly
    played = tuple(_played(case, heard.get(number), file, deriving, slow=slow) for number, case in enumerate(cases))
    return Replayed(played=played, output=output, cpu_seconds=spent)


def _time_left(program: Program, cases: Sequence[Case], budget: Budget) -> float:
    """Return the seconds that playing may still take: for all cases at first, then what they left.

    What each process needs to import the module is given besides.
    """
    if budget.traces is not None:
        return budget.traces
    limits = budget.limits
    traces = sum(1 if case.generated is None else len(case.generated.traces) for case in cases)
    most = limits.python_replay + limits.python_trace * traces
    if not isinstance(program, PythonProgram):
        return most
    processes = sum(1 if case.generated is None else -(-len(case.generated.traces) // _TOGETHER) for case in cases)
    return most + program.import_seconds * processes


def _listen(
    done: Completed, heard: dict[int, _Heard], wanted: Mapping[int, Case], deriving: _Deriving | None
) -> set[int]:
    """Take down what a harness sent, and return the cases that it began; a second attempt replaces the first."""
    begun: set[int] = set()
    for frame in frames(done.channels[0]):
        if frame.case not in wanted:
            continue
        if frame.kind == "B":
            begun.add(frame.case)
            derive = partial(deriving.trace, wanted[frame.case]) if deriving is not None else None
            heard[frame.case] = _Heard(derive_trace=derive)
        elif frame.case in begun:
            heard[frame.case].take(frame)
    for number in begun:
        if heard[number].end is None and (done.slow or done.silent or done.large):
            heard[number].end = {"large": True} if done.large else {"no_time": True}
    return begun


def _played(case: Case, heard: _Heard | None, file: str, deriving: _Deriving | None, *, slow: bool) -> Played:
    """Return what was observed of a case; one that no process began had no time, perhaps for a slow import."""
    operations = case.trace.operations
    heard = heard or _Heard(end={"no_time": True})
    records, stopped = heard.records[: len(operations)], None
    steps = [PlayedStep(record=record) for record in records]
    if deriving is not None and records:
        steps, stopped = deriving.case(case, records)
    played = Played(case, steps=steps, dropped=lines_of((heard.dropped or {}).get("lines"), file))
    if case.generated is not None:
        right = enumerate(case.generated.digests)
        played.failing = tuple(place for place, digest in right if heard.digests.get(place) != digest)
    if stopped is not None:
        played.bad_end = stopped
    elif len(steps) < len(operations):
        call = operations[len(steps)].name
        played.bad_end = ending(call, file, error=heard.error, asked=heard.asked, end=heard.end or {}, slow_import=slow)
    return played
