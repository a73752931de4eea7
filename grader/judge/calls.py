"""What the calls of all public cases show together: what wrong calls have in common, and how complete each call is.

**Patterns.** The calls that go wrong in one way may share a situation that no right call has. Only the calls of a case
up to its first failure count, because later failures are mostly consequences. The report says so in a sentence with the
numbers of calls, but only if chance is no explanation. A hint calls a limit *off by one* only on such evidence.

**Stages.** A call works, works in part, or is not written yet.

Hidden cases do not count, because the numbers would reveal information about them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from grader.assignment.lab import ONLY, Lab
from grader.core.case import NOT_WRITTEN
from grader.core.verdict import CallStage, Stage, Visibility
from grader.judge.work import shown
from grader.runtime.protocol import Comparison, End
from reference.operation import Reply

_LEAST_WRONG = 2
_MOST_WORDS = 2
"""The most situations in a sentence: if the cases do not separate two situations, the sentence names both."""

_LEAST_CHANCE = 1000
"""A word counts only if the chance that an unrelated one separates the same calls is at most 1 in this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall:
    """One operation of a public case, not later than the first operation that went wrong in the case."""

    case: int
    name: str
    expected: Reply
    refused: bool
    """Whether the program refused the call, or did not return from it."""
    wrong: bool


class Patterns:
    """The calls of a submission, and what separates the wrong calls from the right ones."""

    def __init__(self, calls: Sequence[JudgedCall], order: Mapping[str, str]) -> None:
        self.calls = calls
        self.order = order
        self.never = frozenset(_never(calls))
        """The names of the calls that should have done their work in some case, and never did."""
        self._only = {
            key: self._telling_replies(*key) for key in {(call.name, call.expected.refused) for call in calls}
        }

    def only(self, name: str, expected: Reply) -> frozenset[str]:
        """Return the `ONLY` words that all wrongly refused (or accepted) calls of this name have, and no right call."""
        return self._only.get((name, expected.refused), frozenset())

    def sentence(self, wrong: Iterable[int], name: str, known: frozenset[str], expected: Reply) -> str:
        """Say in one sentence what separates the wrong calls of `name` from the right ones; "" if nothing does.

        Only calls that the reference answers as in `expected` are compared; `wrong` are the numbers of the cases whose
        wrong calls count. `known` are circumstances that the reader already knows: only calls that have them are
        compared.
        """
        wrong_cases = set(wrong)
        same = [
            call
            for call in self.calls
            if call.name == name and known <= call.expected.circumstances and _alike(call.expected, expected)
        ]
        bad = [call for call in same if call.wrong and call.case in wrong_cases]
        good = [call for call in same if not call.wrong]
        words = [word for word in self._telling(bad, good) if word not in known][:_MOST_WORDS]
        if not words:
            return ""
        shared = " and ".join(self.order.get(f"{name} {word}", self.order[word]) for word in words)
        others = f"in none of {len(good)} others"
        return f"It goes wrong exactly where {shared}: in all {len(bad)} such calls of {name}, {others}."

    def _telling_replies(self, name: str, refused: bool) -> frozenset[str]:  # noqa: FBT001 - a key of a dict
        same = [call for call in self.calls if call.name == name and call.expected.refused is refused]
        bad = [call for call in same if call.wrong and call.refused is not refused]
        good = [call for call in same if not call.wrong]
        return frozenset(ONLY + word for word in self._telling(bad, good))

    def _telling(self, bad: Sequence[JudgedCall], good: Sequence[JudgedCall]) -> list[str]:
        if len(bad) < _LEAST_WRONG or comb(len(bad) + len(good), len(bad)) < _LEAST_CHANCE:
            return []
        shared = frozenset.intersection(*(call.expected.circumstances for call in bad))
        elsewhere = frozenset[str]().union(*(call.expected.circumstances for call in good))
        return [word for word in self.order if word in shared - elsewhere]


def _alike(reply: Reply, other: Reply) -> bool:
    """Whether both replies accept the call, or both refuse it for the same reason."""
    return reply.refused is other.refused and (not reply.refused or reply.clause == other.clause)


def calls_of(comparisons: Sequence[Comparison], first_wrong: Sequence[int]) -> Iterator[JudgedCall]:
    """Yield the calls of the public cases; `first_wrong` has the first bad operation of each case, -1 for none."""
    for number, comparison in enumerate(comparisons):
        if comparison.case.visibility is not Visibility.PUBLIC:
            continue
        bad = first_wrong[number]
        end = len(comparison.actual) if bad < 0 else min(bad + 1, len(comparison.expected))
        for place, operation in enumerate(comparison.case.trace.operations[:end]):
            yield JudgedCall(
                case=number,
                name=operation.name,
                expected=comparison.expected[place],
                refused=place >= len(comparison.actual) or _did_nothing(comparison.actual[place]),
                wrong=place == bad,
            )


def _never(calls: Sequence[JudgedCall]) -> Iterator[str]:
    asked = [call for call in calls if not call.expected.refused and call.expected.text]
    for name in {call.name for call in asked}:
        if all(call.refused for call in asked if call.name == name):
            yield name


def stages(
    comparisons: Sequence[Comparison], first_wrong: Sequence[int], lab: Lab, unwritten: Collection[str] = ()
) -> tuple[CallStage, ...]:
    """Return the stage of each call that had work to do in a public case and was reached there, in the handout's order.

    `first_wrong` has the first bad operation of each case, -1 if all are right. A call works if it did its
    work at least once before anything went wrong, and no case goes wrong first in it. Only an `unwritten` call can be
    "not yet", if it returned and never did anything that it had to do (`grader.judge.work`): a call that is written
    but never does its work is "in work".
    """
    reached, stuck, busy, sound, wrong = (set[str]() for _ in range(5))
    for number, comparison in enumerate(comparisons):
        if comparison.case.visibility is not Visibility.PUBLIC:
            continue
        operations, actual, bad = comparison.case.trace.operations, comparison.actual, first_wrong[number]
        busy |= {name for name, _ in shown(comparison)}
        wrong |= {operations[bad].name} if 0 <= bad < len(operations) else set()
        for place in _reached(comparison):
            name = operations[place].name
            reached.add(name)
            if place >= len(actual):
                stuck.add(name)
            elif not _did_nothing(actual[place]) and (bad < 0 or place < bad):
                sound.add(name)
    working, not_yet = sound - wrong, {*unwritten} - busy - stuck
    return tuple(
        CallStage(
            call=name,
            task=signature.task,
            stage=Stage.WORKS if name in working else Stage.NOT_YET if name in not_yet else Stage.IN_WORK,
        )
        for name, signature in lab.grammar.operations.items()
        if name in reached
    )


def _reached(comparison: Comparison) -> Iterator[int]:
    """Yield the places of the calls that had work to do, whether or not the calls before them were right."""
    ended = comparison.ended_at if comparison.end is not End.REACHED else None
    for place, reply in enumerate(comparison.expected):
        if reply.text and not reply.refused and (place < len(comparison.actual) or place == ended):
            yield place


def _did_nothing(reply: Reply) -> bool:
    return reply.refused or reply.text == NOT_WRITTEN
