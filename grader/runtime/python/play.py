"""Play cases on a submission: the records after each operation, and how cases ended."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.core.case import Case
from grader.core.errors import TooBusy
from grader.core.verdict import Visibility
from grader.runtime.observation import Played, PlayedStep, Replayed
from grader.runtime.program import Program
from grader.runtime.python.build import PythonProgram
from grader.runtime.python.endings import ending
from grader.runtime.python.process import Frame, decoded, frames, run
from grader.runtime.python.table import CallTable
from grader.runtime.visibility import by_visibility
from grader.system.process import Completed
from grader.system.sandbox import Workspace
from reference.operation import Operation

__all__ = ["line_of", "play"]

_MOST_PROCESSES = 3
_TOGETHER = 100
"""The number of random traces that share a process."""
_PLACE = struct.Struct(">I")
_MOST_OUTPUT = 2000
_STARTS = 100
"""All cases may take as long as so many starts of a harness, on a slow machine more than `TimeLimits.replay`; a right
program needs 40."""
_MOST_IMPORTING = 3.0
"""Seconds that all cases may take for the execution of the module alone."""


@dataclass(slots=True)
class _Heard:
    """What one attempt at a case sent."""

    records: list[bytes] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)
    """Of random traces, by their places: SHA-256 of all their records."""
    error: dict[str, Any] | None = None
    asked: dict[str, Any] | None = None
    end: dict[str, Any] | None = None

    def take(self, frame: Frame) -> None:
        if frame.kind == "S":
            self.records.append(frame.body)
        elif frame.kind == "T" and len(frame.body) >= _PLACE.size:
            (place,) = _PLACE.unpack_from(frame.body)
            self.digests[place] = hashlib.sha256(memoryview(frame.body)[_PLACE.size :]).digest()
        elif frame.kind == "X" and self.error is None:
            self.error = decoded(frame.body)
        elif frame.kind == "H" and self.asked is None:
            self.asked = decoded(frame.body)
        elif frame.kind == "E":
            self.end = decoded(frame.body)


def line_of(number: int, operations: Iterable[Operation]) -> dict[str, object]:
    """Return the line of a plan for a case."""
    return {"case": number, "operations": _described(operations)}


def _described(operations: Iterable[Operation]) -> list[list[object]]:
    return [[one.name, list(one.arguments)] for one in operations]


def _plan(number: int, case: Case) -> Iterator[dict[str, object]]:
    """Yield the lines of a plan for a case: random traces come in parts."""
    if case.generated is None:
        yield line_of(number, case.trace.operations)
        return
    traces = [_described(operations) for operations in case.generated.traces]
    for first in range(0, len(traces), _TOGETHER):
        yield {"case": number, "first": first, "traces": traces[first : first + _TOGETHER]}


def play(
    work: Workspace, program: Program, cases: Sequence[Case], *, table: CallTable, given: Mapping[str, str]
) -> Replayed:
    """Play all cases, each in a process of its own. Raises `TooBusy` when the machine is too busy to tell anything."""
    heard: dict[int, _Heard] = {}
    output, spent = b"", 0.0
    importing = program.import_seconds if isinstance(program, PythonProgram) else 0.0
    modules = program.modules if isinstance(program, PythonProgram) else ()
    starting = program.start_seconds if isinstance(program, PythonProgram) else 0.0
    most = max(work.budget.limits.replay, _STARTS * starting) + min(_MOST_IMPORTING, importing * len(cases))
    for numbers in by_visibility(cases, range(len(cases))):
        left = list(numbers)
        for _ in range(_MOST_PROCESSES):
            if not left:
                break
            lines = [line for number in left for line in _plan(number, cases[number])]
            total = max(0.1, min(most - spent, work.budget.cpu))
            done = run(
                work,
                program.content,
                table,
                lines,
                given=given,
                modules=modules,
                total=total,
            )
            if done.timed_out and not done.silent:
                raise TooBusy("the machine is too busy: the cases were not done in minutes, although no call was slow")
            spent += done.cpu_seconds
            begun = _listen(done, heard, left)
            if cases[numbers[0]].visibility is Visibility.PUBLIC:  # output of a hidden case would reveal it
                output += done.stdout[:_MOST_OUTPUT] + done.stderr[:_MOST_OUTPUT]
            left = [number for number in left if number not in begun]
    file = f"{table.module}.py"
    slow = importing * len(cases) > _MOST_IMPORTING
    played = tuple(_played(case, heard.get(number), file, slow=slow) for number, case in enumerate(cases))
    return Replayed(played=played, output=output, cpu_seconds=spent)


def _listen(done: Completed, heard: dict[int, _Heard], left: Sequence[int]) -> set[int]:
    """Take down what a harness sent, and return the cases that it began; a second attempt replaces the first."""
    wanted, begun = set(left), set()
    for frame in frames(done.channels[0]):
        if frame.case not in wanted:
            continue
        if frame.kind == "B":
            begun.add(frame.case)
            heard[frame.case] = _Heard()
        elif frame.case in begun:
            heard[frame.case].take(frame)
    for number in begun:
        if heard[number].end is None and (done.slow or done.silent or done.large):
            heard[number].end = {"large": True} if done.large else {"no_time": True}
    return begun


def _played(case: Case, heard: _Heard | None, file: str, *, slow: bool) -> Played:
    """Return what was observed of a case; one that no process began had no time, perhaps for a slow import."""
    operations = case.trace.operations
    heard = heard or _Heard(end={"no_time": True})
    steps = [PlayedStep(record=record) for record in heard.records[: len(operations)]]
    played = Played(case, steps=steps)
    if case.generated is not None:
        right = enumerate(case.generated.digests)
        played.failing = tuple(place for place, digest in right if heard.digests.get(place) != digest)
    if len(steps) < len(operations):
        call = operations[len(steps)].name
        played.bad_end = ending(call, file, error=heard.error, asked=heard.asked, end=heard.end or {}, slow_import=slow)
    return played
