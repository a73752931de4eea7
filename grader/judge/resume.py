"""Judge the later calls of a case alone where an earlier call stopped it: from the reference's state.

A call that crashes, hangs or refuses stops every case in which it is only a step on the way, and a single defect in it
would cost nearly all points. So where the harness can build the reference's state itself (`Lab.built`), such a case is
played again without the call: what stands between two of its calls is a part of its own, which begins in the state
that the reference has there. The case passes when each part is right, whatever its rule. Where another call goes wrong
in a part, that is left out too, a few times.

The program gets a state from which it goes on, never one that is expected of a call that is still to be judged. It can
only gain: a case that fails again costs what it cost before.

That is only for cases that are about another call: the folder of a case says which. Rules about lost memory and calls
that close everything need the whole case, because what the harness made says nothing about a program.

In a process that goes on after a call that went wrong, the whole case is played again, and what the call left is mended
behind it (`Lab.mend`). Then the case passes when all other calls do exactly what the reference does. The lab says for
which cases that is fair: for none whose rule would judge the harness's work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from grader.assignment.lab import Lab, Mend
from grader.core.case import Case, Expected
from grader.core.model import play
from grader.core.rubric import Rule
from grader.core.verdict import Verdict
from grader.judge.compare import compare
from grader.runtime.comparison import Comparison, End
from grader.runtime.observation import Played
from reference.operation import Operation, Trace

_MOST_OPERATIONS = 20_000
"""The most operations of all parts together."""
_MOST_ROUNDS = 3
"""How often a case is played again: behind one call that is left out another may show that it goes wrong."""


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
    if lab.mend is not None:
        return _pass_when_mended(comparisons, lab, lab.mend, play_cases)
    if lab.built is None:
        return frozenset()
    left = {
        number: {_first_wrong(comparison)}
        for number, comparison in enumerate(comparisons)
        if _is_stopped(comparison) and not lab.rubric.rule(comparison.case.rule).needs_whole_case
    }
    passing: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        parts: list[_Part] = []
        for number, names in left.items():
            parts += (_Part(number, case) for case in _parts(comparisons[number].case, names, lab))
            if sum(len(part.case.trace.operations) for part in parts) > _MOST_OPERATIONS:
                break
        played = play_cases([part.case for part in parts]) if parts else ()
        compared = [compare(each, lab.model) for each in played]
        wrong: dict[int, set[str]] = {part.number: set() for part in parts}
        for part, comparison in zip(parts, compared, strict=True):
            wrong[part.number] |= set() if _is_right(comparison) else {_first_wrong(comparison)}
        passing |= {number for number, names in wrong.items() if not names}
        left = {number: left[number] | names for number, names in wrong.items() if names - left[number]}
    return frozenset(passing)


def _first_wrong(comparison: Comparison) -> str:
    """The name of the first operation that went wrong."""
    operations = comparison.case.trace.operations
    first = min([comparison.ended_at, *(deviation.operation for deviation in comparison.deviations)])
    return operations[min(first, len(operations) - 1)].name


@dataclass(slots=True)
class _Mended:
    """A case that is played again."""

    number: int
    case: Case
    rule: Rule
    wrong: set[str]
    """The calls that go wrong in it."""
    pokes: dict[int, Operation] = field(default_factory=dict)
    """What mends the state behind the operation of this number."""

    def by_more_than_before(self, mend: Mend) -> bool:
        """Mend what is known to go wrong; whether that is more than the last time."""
        before, self.pokes = self.pokes, dict(mend(self.case, self.rule, frozenset(self.wrong)))
        return self.pokes != before

    @property
    def with_pokes(self) -> Case:
        """The case to be played."""
        operations = self.case.trace.operations
        pairs = ((operation, self.pokes.get(number)) for number, operation in enumerate(operations))
        mended = tuple(each for pair in pairs for each in pair if each is not None)
        return replace(self.case, trace=replace(self.case.trace, operations=mended))

    def first_wrong(self, played: Played) -> str:
        """The first call that does not do what the reference does and is not mended; "" without one."""
        steps = iter(played.steps)
        for number, operation in enumerate(self.case.trace.operations):
            step = next(steps, None)
            right = step is not None and step.record == self.case.expected.records[number]
            if not right and not (number in self.pokes and operation.name in self.wrong):
                return operation.name
            if number in self.pokes:
                next(steps, None)
        return ""


def _pass_when_mended(
    comparisons: Sequence[Comparison], lab: Lab, mend: Mend, play_cases: Callable[[Sequence[Case]], Sequence[Played]]
) -> frozenset[int]:
    """Return the numbers of the stopped cases that pass when what goes wrong in them is mended."""
    left: list[_Mended] = []
    for number, comparison in enumerate(comparisons):
        case = comparison.case
        is_written = case.generated is None and case.seed is None
        if not is_written or not _is_stopped(comparison) or _hangs(comparison.played):
            continue
        first = _first_wrong(comparison)
        left.append(_Mended(number=number, case=case, rule=lab.rubric.rule(case.rule), wrong={first}))
    passing: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        left = [mended for mended in left if mended.by_more_than_before(mend)]
        played = play_cases([mended.with_pokes for mended in left]) if left else ()
        again = []
        for mended, each in zip(left, played, strict=True):
            name = mended.first_wrong(each)
            if not name:
                passing.add(mended.number)
            elif each.ending is None:
                mended.wrong.add(name)
                again.append(mended)
        left = again
    return frozenset(passing)


def _hangs(played: Played) -> bool:
    """Whether a call used up its time, as it would again."""
    return played.ending is not None and played.ending.verdict is Verdict.TIME_LIMIT_EXCEEDED


def _is_stopped(comparison: Comparison) -> bool:
    """Whether a call did not return, left what nothing follows from, or refused what it must accept."""
    ended = comparison.end in (End.ENDED, End.UNREADABLE) and not comparison.is_cleanup(comparison.ended_at)
    return ended or comparison.refused is not None


def _is_right(comparison: Comparison) -> bool:
    """Whether every call but the clean-up was right in all that it did: one that pretends has only a right reply."""
    wrong = [deviation.operation for deviation in comparison.deviations]
    first = min([comparison.ended_at, *wrong])
    return first == len(comparison.case.trace.operations) or comparison.is_cleanup(first)


def _parts(case: Case, names: Collection[str], lab: Lab) -> Iterator[Case]:
    """Yield the parts of a case between the calls of these names; none if it is about one of them."""
    operations = case.trace.operations
    about = case.name.partition("/")[0]
    calls = {operation.name for operation in operations if about in operation.name}
    if not calls or calls & {*names} or any(lab.grammar.operations[call].closes for call in calls):
        return
    if len(names) > 1 and all(lab.grammar.operations[call].opens for call in calls):  # little else would be left
        return
    model = lab.model(case.trace)
    before: list[Operation] = []
    part: list[Operation] = []
    for operation in operations:
        if operation.name in names:
            yield from _part(case, lab, before, part)
            part = []
        else:
            part.append(operation)
        model.apply(operation)
        if operation.name in names:
            before = list(lab.built(model)) if lab.built is not None else []
    yield from _part(case, lab, before, part)


def _part(case: Case, lab: Lab, before: Iterable[Operation], part: Sequence[Operation]) -> Iterator[Case]:
    if all(operation.implicit for operation in part):
        return
    trace = Trace(operations=(*before, *part), settings=case.trace.settings)
    yield replace(case, trace=trace, expected=Expected.of(play(lab.model(trace), trace)))
