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
from grader.core.verdict import SourceLine, Verdict, Visibility
from grader.runtime.protocol import NO_TIME, Ending, Played, PlayedStep, Replayed
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.process import (
    PythonFrame,
    PythonProgram,
    decoded,
    ending,
    frames,
    lines_of,
    run,
    unexplained,
)
from grader.runtime.runs import by_visibility, printed_by
from grader.system.budget import Budget
from grader.system.process import Completed
from grader.system.sandbox import Workspace
from reference.operation import Operation
from reference.oracle import text_of

_MOST_PROCESSES = 3
_TOGETHER = 100
"""The number of random traces that share a process."""
_PLACE = struct.Struct(">I")
_MOST_DERIVING = 30.0
"""The most CPU seconds to derive the records of all cases; those of a right program take a few seconds."""


@dataclass(slots=True)
class PythonPlayed(Played):
    """Everything that was reported of one case of a Python submission."""

    cut_off: str = ""
    """How the case ended, if something outside the program caused that."""

    @property
    def unexplained_end(self) -> str:
        """How the case ended, if something outside the program caused that; "" otherwise."""
        return self.cut_off


@dataclass(frozen=True, slots=True)
class DerivedStep:
    """An operation: the record that is judged, and the submission's lines that caused wrong parts of its state."""

    record: dict[str, Any]
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The submission's lines, by the name of the part of the state."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for pictures; they are not judged."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The steps of a case that can be judged."""

    steps: Sequence[DerivedStep]
    stopped: str = ""
    """Why the operation after the last step cannot be judged; "" if all can."""
    lines: tuple[int, ...] = ()
    """The submission's lines that caused the stop."""


Derive = Callable[[Sequence[Operation], Sequence[Mapping[str, Any]]], Derived]
"""Makes the records to judge, from a case's operations and the records that a program sent. The program may send
anything: what is wrong with its records becomes part of a step or `Derived.stopped`, never an exception."""


@dataclass(slots=True)
class _Heard:
    """What was received in one attempt at a case."""

    records: list[bytes] = field(default_factory=list)
    derive_trace: Callable[[int, bytes], bytes] | None = None
    """Returns the digest of a trace, if the trace's records must be derived before they are judged."""
    digests: dict[int, bytes] = field(default_factory=dict)
    """SHA-256 of all records of a random trace, by the trace's number."""
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the harness reported once in the case, by the kind of its frame (harness/play.py)."""

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
        elif frame.kind == "X":
            self.reports.setdefault("X", decoded(frame.body))
        elif frame.kind in ("H", "N", "E"):
            self.reports[frame.kind] = decoded(frame.body)


def line_of(number: int, operations: Iterable[Operation]) -> dict[str, object]:
    """Return the message that makes the harness play a case with these operations."""
    return {"case": number, "operations": listed(operations)}


def _plan(number: int, case: Case, variants: Sequence[bytes]) -> Iterator[dict[str, object]]:
    """Yield the messages that make the harness play a case; a case of random traces is played in parts."""
    generated = case.generated
    if generated is None:
        line = line_of(number, case.trace.operations)
        yield {**line, "variant": variants[number]} if variants else line
        return
    packed, lengths = generated.packed or tuple(map(pack, generated.traces)), [*map(len, generated.traces)]
    for first in range(0, len(packed), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        line = {"case": number, "first": first, "traces": packed[part], "lengths": lengths[part]}
        yield line if generated.every is None else {**line, "every": generated.every}


@dataclass(slots=True)
class _Deriving:
    """Derives records (see `Derive`), within its own time limit: the submission's budget is not charged."""

    derive: Derive
    file: str
    budget: Budget
    spent: float = 0.0

    def case(self, case: Case, records: Sequence[bytes]) -> tuple[list[PlayedStep], Ending | None]:
        """Return the steps of a case that are judged, and an ending if one of them cannot be judged."""
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
        """Return the digest of a random trace's derived records; b"" if the trace cannot be judged."""
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
    """Return the bytes of a derived record; b"" for one that is nested too deeply."""
    try:
        return text_of(step.record).encode()
    except RecursionError:
        return b""


def play(
    work: Workspace,
    program: PythonProgram,
    cases: Sequence[Case],
    *,
    driver: PythonDriver,
    derive: Derive | None = None,
    variants: Sequence[bytes] = (),
) -> Replayed:
    """Play all cases, each in a process of its own.

    `derive` makes the records to judge, from those that the program sent. `variants` has for each case the text that is
    executed instead of the program's; empty if it is always the program's. Raises `TooBusy` if the machine is so busy
    that nothing is known about the program.
    """
    budget = work.budget
    deriving = _Deriving(derive, driver.file, budget) if derive is not None else None
    heard: dict[int, _Heard] = {}
    output, spent = b"", 0.0
    most, paid = _time_left(program, cases, budget), budget.paid
    budget.leave_out(most)
    for numbers in by_visibility(cases, range(len(cases))):
        left = list(numbers)
        for _ in range(_MOST_PROCESSES):
            if not left:
                break
            lines = [line for number in left for line in _plan(number, cases[number], variants)]
            total = max(0.1, most - (budget.paid - paid))
            done = run(work, program, driver, lines, total=total)
            printed = printed_by(done)
            spent += done.cpu_seconds
            begun = _listen(done, heard, {number: cases[number] for number in left}, deriving)
            if cases[numbers[0]].visibility is Visibility.PUBLIC:  # output of a hidden case would reveal it
                output += printed
            left = [number for number in left if number not in begun]
    budget.traces = max(0.0, most - (budget.paid - paid))
    budget.leave_out(-budget.traces)
    file = driver.file
    slow = program.begins_slowly
    played = tuple(_played(case, heard.get(number), file, deriving, slow=slow) for number, case in enumerate(cases))
    return Replayed(played=played, output=output, cpu_seconds=spent)


def _time_left(program: PythonProgram, cases: Sequence[Case], budget: Budget) -> float:
    """Return the seconds that playing may still take; before the first case, those for all `cases`.

    These contain the time in which each process imports the module.
    """
    if budget.traces is not None:
        return budget.traces
    limits = budget.limits
    traces = sum(1 if case.generated is None else len(case.generated.traces) for case in cases)
    processes = sum(1 if case.generated is None else -(-len(case.generated.traces) // _TOGETHER) for case in cases)
    return limits.python_replay + limits.python_trace * traces + program.import_seconds * processes


def _listen(
    done: Completed, heard: dict[int, _Heard], wanted: Mapping[int, Case], deriving: _Deriving | None
) -> set[int]:
    """Record what a harness sent, and return the cases that it began. A second attempt replaces the first."""
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
        if done.slow or done.silent or done.large:
            heard[number].reports.setdefault("E", {"large": True} if done.large else {"no_time": True})
    return begun


def _played(case: Case, heard: _Heard | None, file: str, deriving: _Deriving | None, *, slow: bool) -> Played:
    """Return what was observed of a case. If no process began it, no time was left for it."""
    operations = case.trace.operations
    heard = heard or _Heard(reports={"E": {"no_time": True}})
    records, stopped = heard.records[: len(operations)], None
    steps = [PlayedStep(record=record) for record in records]
    if deriving is not None and records:
        steps, stopped = deriving.case(case, records)
    played = PythonPlayed(case, steps=steps, dropped=lines_of(heard.reports.get("N", {}).get("lines"), file))
    if case.generated is not None:
        right = enumerate(case.generated.digests)
        played.failing = tuple(place for place, digest in right if heard.digests.get(place) != digest)
    if stopped is not None:
        played.bad_end = stopped
    elif len(steps) < len(operations):
        call = operations[len(steps)].name
        played.bad_end = ending(call, file, heard.reports, slow_import=slow)
        played.cut_off = unexplained(heard.reports)
    return played
