"""Find what all calls that go wrong in one way have in common and no right call has, over all public cases.

The calls of a case count up to its first failure: what follows is mostly a consequence. Hidden cases do not count,
because the numbers would reveal information about them.

The sentence gives the numbers, and is written only where chance is no explanation. A limit is called *off by one* only
on that evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from grader.assignment.lab import ONLY
from grader.core.verdict import Visibility
from grader.runtime.comparison import Comparison
from reference.operation import Reply

__all__ = ["Call", "Patterns", "calls_of"]

_LEAST_WRONG = 2
_MOST_WORDS = 2
"""The most situations in a sentence: where the cases do not separate two situations, it names both."""

_LEAST_CHANCE = 1000
"""An unrelated word fits all wrong calls and no right one with a chance of at most one in this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation of a public case, at or before the first one that went wrong there."""

    case: int
    name: str
    words: frozenset[str]
    expected: Reply
    refused: bool
    """Whether it did not do its work."""
    wrong: bool


class Patterns:
    """The calls of a submission, and what separates the wrong calls from the right ones."""

    def __init__(self, calls: Sequence[Call], order: Mapping[str, str]) -> None:
        self.calls = calls
        self.order = order
        self.never = frozenset(_never(calls))
        """Calls that did their work in no case, although they had to."""
        self._only = {key: self._telling_replies(*key) for key in {(one.name, one.expected.refused) for one in calls}}

    def only(self, name: str, expected: Reply) -> frozenset[str]:
        """The `ONLY` words that all wrongly refused (or accepted) calls of this name share and no right call has."""
        return self._only.get((name, expected.refused), frozenset())

    def sentence(self, wrong: Iterable[int], name: str, known: frozenset[str], expected: Reply) -> str:
        """Say in one sentence what separates the wrong calls of these cases from the right ones; "" if nothing does.

        `known` are circumstances that the reader already knows: only calls that have them are compared.
        """
        chosen = set(wrong)
        same = [one for one in self.calls if one.name == name and known <= one.words and _alike(one.expected, expected)]
        bad = [one for one in same if one.wrong and one.case in chosen]
        good = [one for one in same if not one.wrong]
        words = [word for word in self._telling(bad, good) if word not in known][:_MOST_WORDS]
        if not words:
            return ""
        shared = " and ".join(self.order.get(f"{name} {word}", self.order[word]) for word in words)
        others = f"in none of {len(good)} others"
        return f"It goes wrong exactly where {shared}: in all {len(bad)} such calls of {name}, {others}."

    def _telling_replies(self, name: str, refused: bool) -> frozenset[str]:  # noqa: FBT001 - a key of a dict
        same = [one for one in self.calls if one.name == name and one.expected.refused is refused]
        bad = [one for one in same if one.wrong and one.refused is not refused]
        good = [one for one in same if not one.wrong]
        return frozenset(ONLY + word for word in self._telling(bad, good))

    def _telling(self, bad: Sequence[Call], good: Sequence[Call]) -> list[str]:
        if len(bad) < _LEAST_WRONG or comb(len(bad) + len(good), len(bad)) < _LEAST_CHANCE:
            return []
        shared = frozenset.intersection(*(one.words for one in bad))
        elsewhere = frozenset[str]().union(*(one.words for one in good))
        return [word for word in self.order if word in shared - elsewhere]


def _alike(one: Reply, other: Reply) -> bool:
    """Whether both are accepted, or both are refused for the same reason."""
    return one.refused is other.refused and (not one.refused or one.clause == other.clause)


def calls_of(comparisons: Sequence[Comparison], first_wrong: Callable[[int], int]) -> Iterator[Call]:
    """Yield the calls of the public cases; `first_wrong` maps a case to its first bad operation, -1 without one."""
    for number, one in enumerate(comparisons):
        if one.case.visibility is not Visibility.PUBLIC:
            continue
        bad = first_wrong(number)
        end = len(one.actual) if bad < 0 else min(bad + 1, len(one.expected))
        for place, operation in enumerate(one.case.trace.operations[:end]):
            yield Call(
                case=number,
                name=operation.name,
                words=one.expected[place].circumstances,
                expected=one.expected[place],
                refused=place >= len(one.actual) or one.actual[place].refused,
                wrong=place == bad,
            )


def _never(calls: Sequence[Call]) -> Iterator[str]:
    asked = [one for one in calls if not one.expected.refused and one.expected.text]
    for name in {one.name for one in asked}:
        if all(one.refused for one in asked if one.name == name):
            yield name
