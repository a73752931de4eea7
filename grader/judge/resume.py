"""If a call stopped its case, judge the later calls of the case separately, from the reference's state.

A call that crashes, hangs or refuses stops every case that only needs it for its set-up, so a single defect in
the call would cost nearly all points. If the harness can build the reference's state (`Lab.built`), such a case is
played again without the call. The operations between two calls that are left out become a part of their own, which
begins in the reference's state at that place. The case passes if each part is right, whatever the rule of the case. If
another call goes wrong in a part, this call is left out too, in at most `_MOST_ROUNDS` rounds.

The program only gets a state to continue from, never the expected state of a call that is still to be judged. It can
only gain points: a case that fails again costs what it cost before.

This is done only for cases that are about another call; the folder of a case says which call it is about. Rules about
lost memory and calls that close everything need the whole case, because memory that the harness obtained says nothing
about the program.

If the process continues after a failing call (a Python program), the whole case is played again, and the harness mends
the state after that call (`Lab.mend`). The case passes if all other calls do exactly what the reference does. The lab
says for which cases this is fair: never if the rule would judge the harness's own work.
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
from grader.runtime.protocol import Comparison, End, Played
from reference.operation import Operation, Trace

_MOST_OPERATIONS = 20_000
"""The most operations of all parts together."""
_MOST_ROUNDS = 3
"""How often a case is played again: after one call is left out, another one may turn out to be wrong."""


def pass_when_resumed(
    comparisons: Sequence[Comparison], lab: Lab, play_cases: Callable[[Sequence[Case]], Sequence[Played]]
) -> frozenset[int]:
    """Return the numbers of the stopped cases that pass if their later calls are judged separately.

    `play_cases` plays cases with the submission. Nothing is played if the lab can neither mend nor build states.
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
        parts: list[tuple[int, Case]] = []  # each with the number of the case that it is a part of
        for number, names in left.items():
            parts += ((number, part) for part in _parts(comparisons[number].case, names, lab))
            if sum(len(part.trace.operations) for _, part in parts) > _MOST_OPERATIONS:
                break
        played = play_cases([part for _, part in parts]) if parts else ()
        compared = [compare(each, lab.model) for each in played]
        wrong: dict[int, set[str]] = {number: set() for number, _ in parts}
        for (number, _), comparison in zip(parts, compared, strict=True):
            wrong[number] |= set() if _is_right(comparison) else {_first_wrong(comparison)}
        passing |= {number for number, names in wrong.items() if not names}
        left = {number: left[number] | names for number, names in wrong.items() if names - left[number]}
    return frozenset(passing)


def _first_wrong(comparison: Comparison) -> str:
    """Return the name of the first operation that went wrong."""
    operations = comparison.case.trace.operations
    return operations[min(comparison.first_wrong, len(operations) - 1)].name


@dataclass(slots=True)
class _Mended:
    """A stopped case that is played again, with pokes that mend the state after wrong calls."""

    number: int
    case: Case
    rule: Rule
    wrong: set[str]
    """The names of the calls that are known to go wrong in the case."""
    pokes: dict[int, Operation] = field(default_factory=dict)
    """For the number of an operation, the poke that mends the state after this operation."""

    def by_more_than_before(self, mend: Mend) -> bool:
        """Let `mend` choose pokes that mend the state after the calls in `wrong`. Return whether `pokes` changed."""
        before, self.pokes = self.pokes, dict(mend(self.case, self.rule, frozenset(self.wrong)))
        return self.pokes != before

    @property
    def with_pokes(self) -> Case:
        """The case with the pokes in it."""
        operations = self.case.trace.operations
        pairs = ((operation, self.pokes.get(number)) for number, operation in enumerate(operations))
        mended = tuple(each for pair in pairs for each in pair if each is not None)
        return replace(self.case, trace=replace(self.case.trace, operations=mended))

    def first_wrong(self, played: Played) -> str:
        """Return the first call that differs from the reference and is not mended; "" if there is none."""
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
    """Return the numbers of the stopped cases that pass if the harness mends the state after each wrong call."""
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
    """Whether a call used up its time. Such a case is not played again, because the call would hang again."""
    return played.ending is not None and played.ending.verdict is Verdict.TIME_LIMIT_EXCEEDED


def _is_stopped(comparison: Comparison) -> bool:
    """Whether a call did not return, left a state that cannot be judged, or refused what it must accept."""
    ended = comparison.end in (End.ENDED, End.UNREADABLE) and not comparison.is_cleanup(comparison.ended_at)
    return ended or comparison.refused is not None


def _is_right(comparison: Comparison) -> bool:
    """Whether every call except the clean-up was right in reply and state: a right reply alone may be pretence."""
    first = comparison.first_wrong
    return first == len(comparison.case.trace.operations) or comparison.is_cleanup(first)


def _parts(case: Case, names: Collection[str], lab: Lab) -> Iterator[Case]:
    """Yield the parts of a case between the calls with these names; none if the case is about one of these calls."""
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
