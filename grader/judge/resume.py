"""Judge the later calls of a case alone where an earlier call stopped it: from the reference's state.

A call that crashes, hangs or refuses stops every case in which it is only a step on the way, and a single defect in it
would cost nearly all points. So where the harness can build the reference's state itself (`Lab.built`), such a case is
played again without the call: what stands between two of its calls is a part of its own, which begins in the state
that the reference has there. The case passes when each part is right, whatever its rule.

The program gets a state from which it goes on, never one that is expected of a call that is still to be judged. It can
only gain: a case that fails again costs what it cost before.

That is only for cases that are about another call: the folder of a case says which. Rules about lost memory and calls
that close everything need the whole case, because what the harness made says nothing about a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from grader.assignment.lab import Lab
from grader.core.case import Case, Expected
from grader.core.model import play
from grader.judge.compare import compare
from grader.runtime.comparison import Comparison, End
from grader.runtime.observation import Played
from reference.operation import Operation, Trace

_MOST_OPERATIONS = 20_000
"""The most operations of all parts together."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Operations of a case between two calls that are left out, as a case of its own."""

    number: int
    """That of the case."""
    case: Case


def pass_when_resumed(
    comparisons: Sequence[Comparison], lab: Lab, play_cases: Callable[[Sequence[Case]], Sequence[Played]]
) -> frozenset[int]:
    """Return the numbers of the stopped cases that pass when their later calls are judged alone.

    `play_cases` plays cases with the submission. Nothing is played where the lab builds no states.
    """
    if lab.built is None:
        return frozenset()
    parts: list[_Part] = []
    for number, comparison in enumerate(comparisons):
        rule = lab.rubric.rule(comparison.case.rule)
        if _is_stopped(comparison) and not rule.needs_whole_case:
            parts += (_Part(number, case) for case in _parts(comparison, lab))
        if sum(len(part.case.trace.operations) for part in parts) > _MOST_OPERATIONS:
            break
    if not parts:
        return frozenset()
    played = play_cases([part.case for part in parts])
    wrong = {part.number for part, each in zip(parts, played, strict=True) if not _is_right(compare(each, lab.model))}
    return frozenset(part.number for part in parts) - wrong


def _is_stopped(comparison: Comparison) -> bool:
    """Whether a call did not return, left what nothing follows from, or refused what it must accept."""
    ended = comparison.end in (End.ENDED, End.UNREADABLE) and not comparison.is_cleanup(comparison.ended_at)
    return ended or comparison.refused is not None


def _is_right(comparison: Comparison) -> bool:
    """Whether every call but the clean-up was right in all that it did: one that pretends has only a right reply."""
    wrong = [deviation.operation for deviation in comparison.deviations]
    first = min([comparison.ended_at, *wrong])
    return first == len(comparison.case.trace.operations) or comparison.is_cleanup(first)


def _parts(comparison: Comparison, lab: Lab) -> Iterator[Case]:
    """Yield the parts of a case between the calls of the name that went wrong first; none if it is about that call."""
    case = comparison.case
    operations = case.trace.operations
    first = min([comparison.ended_at, *(deviation.operation for deviation in comparison.deviations)])
    name, about = operations[min(first, len(operations) - 1)].name, case.name.partition("/")[0]
    calls = {operation.name for operation in operations if about in operation.name}
    if not calls or name in calls or any(lab.grammar.operations[call].closes for call in calls):
        return
    model = lab.model(case.trace)
    before: list[Operation] = []
    part: list[Operation] = []
    for operation in operations:
        if operation.name == name:
            yield from _part(case, lab, before, part)
            part = []
        else:
            part.append(operation)
        model.apply(operation)
        if operation.name == name:
            before = list(lab.built(model)) if lab.built is not None else []
    yield from _part(case, lab, before, part)


def _part(case: Case, lab: Lab, before: Iterable[Operation], part: Sequence[Operation]) -> Iterator[Case]:
    if all(operation.implicit for operation in part):
        return
    trace = Trace(operations=(*before, *part), settings=case.trace.settings)
    yield replace(case, trace=trace, expected=Expected.of(play(lab.model(trace), trace)))
