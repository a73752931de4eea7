"""Advice on a submission that costs no point: the handout does not judge these things (fairness).

Undefined behaviour: a build that reports it replays the cases. Allocations that fail: the graded program replays
short cases, each time with another allocation returning NULL. Scratch memory: allocations that are freed again by the
call that made them. Only public cases are used, so that no advice reveals a hidden case. A failing allocation counts
only in a call that went well without the failure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grader.core.case import Case
from grader.core.verdict import Advice, SourceLine, Visibility
from grader.runtime.native.native_played import (
    BlockEvent,
    HeapEvent,
    NativePlayed,
    NativeReplayed,
    Remark,
    native_played,
)
from grader.runtime.native.project import Driver, NativeProgram, native_program
from grader.runtime.native.replay import WATCH, replay
from grader.runtime.native.symbolize import Lines, source_lines, stack_of
from grader.runtime.native.symptoms import lost_natively
from grader.runtime.native.values import decode
from grader.runtime.protocol import Advised, Built, Comparison, End, Played
from grader.system.sandbox import Workspace

UNDEFINED_BEHAVIOUR = "undefined-behaviour"
ALLOCATION_FAILURE = "allocation-failure"
NEEDLESS_ALLOCATION = "needless-allocation"

_MOST_UNDEFINED = 20
_MOST_FAILURES = 40

_UNDEFINED = (
    *("", "a calculation with signed numbers overflows", "a division by 0, or one that overflows"),
    *("a shift by a negative number or by too many bits, or of a negative number",),
    *("an index outside of its array", "an array of variable length has no positive length"),
    *("a bool or an enum holds a value that is none of its own",),
    *("NULL is given to a function that must not get it", "NULL is returned where that is ruled out"),
    *("pointer arithmetic leaves the address space", "NULL is used as a pointer"),
    *("a pointer is not aligned for what it points to", "an object is too small for what is read or written there"),
    *("a builtin function is given a number that it does not allow", "a place that cannot be reached is reached"),
)
"""Words for undefined behaviour, by the values of `enum undefined` in harness/faults.c."""

_ENDS = {
    "crash": "crashes",
    "hang": "does not come back",
    "left": "ends the whole program",
    "stopped": "ends the whole program",
    End.UNREADABLE.value: "leaves structures that nobody can follow",
}
"""What a call does, by the kind of the ending of its case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """One call in which an allocation failed, and the consequence."""

    comparison: Comparison
    operation: int
    consequence: str
    """The consequence in words; {lines} stands for the lines that made the allocations."""
    allocated_at: tuple[int, ...]
    stack: tuple[int, ...]


def look_for_advice(
    work: Workspace,
    driver: Driver,
    build: Callable[[Workspace], Built],
    *,
    program: NativeProgram,
    comparisons: Sequence[Comparison],
    judge: Callable[[Played], Comparison],
) -> Advised:
    """Look for undefined behaviour, failing allocations, scratch memory. Raises `GraderError` if the grader breaks."""
    if work.budget.empty:
        return Advised(advice=(_not_looked("the program took all the time that a submission has"),), cpu_seconds=0.0)
    sound = [each for each in comparisons if each.case.visibility is Visibility.PUBLIC and each.end is End.REACHED]
    advice: list[Advice] = []
    spent = 0.0

    def run(what: NativeProgram, cases: Sequence[Case], failing: Sequence[int] = ()) -> NativeReplayed:
        nonlocal spent
        played = replay(work, what, cases, driver=driver, failing=failing)
        spent += played.cpu_seconds
        return played

    built = build(work)
    spent += built.cpu_seconds
    if built.program is None:
        advice.append(_not_looked("gcc does not build the file with -fsanitize=undefined"))
    else:
        played = run(native_program(built.program), [each.case for each in sound]).played
        advice += _undefined(played, program.source_name)
    advice += _probed(sound, driver, partial(run, program), partial(source_lines, work, program), judge=judge)
    return Advised(advice=tuple(advice), cpu_seconds=spent)


def _not_looked(why: str) -> Advice:
    return Advice(kind="not-looked", message=f"Not everything could be looked at: {why}")


def _undefined(played: Sequence[NativePlayed], source_name: str) -> Iterator[Advice]:
    """Yield one advice for each line, with the first case and call that showed it."""
    first_by_line: dict[int, tuple[int, int, NativePlayed, Remark]] = {}
    for played_case in played:
        for remark in played_case.remarks:
            if len(remark.body) >= 12 and remark.operation in range(len(played_case.case.trace.operations)):
                what, line, column = struct.unpack_from("<3I", remark.body)
                if Path(remark.body[12:].decode(errors="replace")).name == source_name and what < len(_UNDEFINED):
                    first_by_line.setdefault(line, (what, column, played_case, remark))
    for line, (what, column, played_case, remark) in sorted(first_by_line.items())[:_MOST_UNDEFINED]:
        call = played_case.case.trace.operations[remark.operation].name
        yield Advice(
            kind=UNDEFINED_BEHAVIOUR,
            message=f"undefined behaviour in {call}: {_UNDEFINED[what]}",
            case=played_case.case.name,
            operation=remark.operation + 1,
            source=(SourceLine(file=source_name, line=line, column=column),),
        )


def _probed(
    sound: Sequence[Comparison],
    driver: Driver,
    run: Callable[[Sequence[Case], Sequence[int]], NativeReplayed],
    look_up: Callable[[Sequence[tuple[int, ...]]], Lines],
    *,
    judge: Callable[[Played], Comparison],
) -> Iterator[Advice]:
    """Yield advice on allocations that fail and on scratch memory, from one replay of the graded program."""
    probes = [*_to_fail(sound, driver), *((each, WATCH) for each in sound if _frees_and_allocates(each))]
    if not probes:
        return
    played = run([comparison.case for comparison, _ in probes], [failing for _, failing in probes]).played
    failures: list[_Failure] = []
    scratch: list[tuple[Comparison, BlockEvent]] = []
    for (base, failing), played_case in zip(probes, played, strict=True):
        if failing == WATCH:
            scratch += [(base, event) for event in played_case.events if event.event is HeapEvent.SCRATCH]
        else:
            failures += _failures(base, judge(played_case), driver)
    stacks = [stack_of(event.allocated_at) for _, event in scratch]
    stacks += [stack for failure in failures for stack in (failure.allocated_at, failure.stack)]
    lines = look_up(stacks)
    yield from _failure_advice(failures, lines)
    yield from _scratch_advice(scratch, lines)


def _to_fail(sound: Sequence[Comparison], driver: Driver) -> list[tuple[Comparison, int]]:
    """Choose allocations that are to fail: the first, second, ... of every call, each in the shortest case with it."""
    selected: dict[tuple[int, str], tuple[Comparison, int]] = {}
    for comparison in sorted(sound, key=lambda comparison: len(comparison.case.trace.operations)):
        allocated_before = 0
        steps = zip(comparison.expected, native_played(comparison).steps, strict=True)
        for operation, (reply, step) in zip(comparison.case.trace.operations, steps, strict=True):
            if not driver.operations[operation.name].is_poke and not reply.refused:
                for number in range(min(step.allocations, _MOST_FAILURES)):
                    selected.setdefault((number, operation.name), (comparison, allocated_before + number + 1))
            allocated_before += step.allocations
    return [selected[key] for key in sorted(selected)][:_MOST_FAILURES]


def _frees_and_allocates(comparison: Comparison) -> bool:
    """Return whether a call that the handout lets succeed both allocates and frees."""
    return any(
        step.allocations and step.frees and not reply.refused
        for step, reply in zip(native_played(comparison).steps, comparison.expected, strict=True)
    )


def _failures(base: Comparison, comparison: Comparison, driver: Driver) -> Iterator[_Failure]:
    """Yield the consequence of the failing allocation if it is bad; `base` is the case without the failure."""
    failed = next((event for event in native_played(comparison).events if event.event is HeapEvent.FAILED), None)
    if failed is None or not 0 <= failed.operation < len(base.case.trace.operations):
        return
    at = failed.operation
    fault = native_played(comparison).left or native_played(comparison).fault
    consequence = _consequence(base, comparison, at, driver)
    if consequence:
        yield _Failure(
            comparison=comparison,
            operation=at,
            consequence=consequence,
            allocated_at=stack_of(failed.allocated_at),
            stack=fault.stack if fault is not None and comparison.ended_at == at else (),
        )


def _consequence(base: Comparison, comparison: Comparison, at: int, driver: Driver) -> str:
    """Return what the failing allocation in operation `at` led to, in words; "" if it did no harm."""
    call = comparison.case.trace.operations[at].name
    if comparison.ended_at <= at:
        ends = _ENDS.get(comparison.ending_kind)
        return f"{call} {ends} when the allocation {{lines}} fails" if ends and comparison.ended_at == at else ""
    before = base.played.steps[at - 1].record if at else b""
    after = comparison.played.steps[at].record
    reply = comparison.actual[at]
    if not reply.refused:
        wrong = at in comparison.wrong
        done = after == base.played.steps[at].record or not wrong
        return "" if done else f"{call} does not notice that the allocation {{lines}} fails, and reports success"
    if not driver.operations[call].opens and decode(after)["state"] != decode(before)["state"]:
        return f"{call} returns {reply.text} when the allocation {{lines}} fails, but leaves its work half done"
    lost = any(event.event is HeapEvent.LIVE and event.allocated_by == at for event in native_played(comparison).events)
    if lost and comparison.end is End.REACHED and not lost_natively(base):
        return f"{call} returns {reply.text} when the allocation {{lines}} fails, but loses what it allocated before"
    return ""


def _failure_advice(failures: Sequence[_Failure], lines: Lines) -> Iterator[Advice]:
    """Yield one advice for each call and consequence."""
    groups: dict[str, list[_Failure]] = {}
    for failure in failures:
        groups.setdefault(failure.consequence, []).append(failure)
    for consequence, members in groups.items():
        innermost = [lines.get(failure.allocated_at, ())[:1] for failure in members]
        places = sorted({place[0].line for place in innermost if place})
        first = members[0]
        yield Advice(
            kind=ALLOCATION_FAILURE,
            message=consequence.format(lines=_at_lines(places)),
            case=first.comparison.case.name,
            operation=first.operation + 1,
            source=lines.get(first.stack, ()) or lines.get(first.allocated_at, ()),
        )


def _at_lines(numbers: Sequence[int]) -> str:
    if not numbers:
        return "somewhere"
    *others, last = map(str, numbers)
    return f"at line {', '.join(others)} or {last}" if others else f"at line {last}"


def _scratch_advice(scratch: Sequence[tuple[Comparison, BlockEvent]], lines: Lines) -> Iterator[Advice]:
    """Yield one advice for each call and line."""
    first_by_place: dict[tuple[str, tuple[SourceLine, ...]], tuple[Comparison, BlockEvent]] = {}
    for comparison, event in scratch:
        if 0 <= event.operation < len(comparison.expected) and not comparison.expected[event.operation].refused:
            call = comparison.case.trace.operations[event.operation].name
            first_by_place.setdefault((call, lines.get(stack_of(event.allocated_at), ())), (comparison, event))
    for (call, place), (comparison, event) in first_by_place.items():
        yield Advice(
            kind=NEEDLESS_ALLOCATION,
            message=f"{call} allocates memory here ({event.size} bytes) and frees it again; it can do without",
            case=comparison.case.name,
            operation=event.operation + 1,
            source=place,
        )
