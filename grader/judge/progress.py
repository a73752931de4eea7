"""The stage of each demanded call: it works, it is in work, or it has not done its work in any case yet.

Hidden cases do not count, because their results would reveal information about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto

from grader.assignment.lab import Lab
from grader.core.verdict import CallStage, Stage, Visibility
from grader.runtime.comparison import Comparison, End


def stages(comparisons: Sequence[Comparison], first_wrong: Callable[[int], int], lab: Lab) -> tuple[CallStage, ...]:
    """The stage of each call that had work to do in a public case and was reached there, in the handout's order.

    `first_wrong` maps the number of a case to its first bad operation, -1 where all are right. A call works when it did
    its work at least once with nothing wrong before it, and no case goes wrong first in it. A call that did not return
    is in work: a function that is not written yet does not crash.
    """
    did: dict[str, set[_Did]] = {}
    sound, wrong = set(), set()
    for number, comparison in enumerate(comparisons):
        if comparison.case.visibility is not Visibility.PUBLIC:
            continue
        operations, bad = comparison.case.trace.operations, first_wrong(number)
        wrong |= {operations[bad].name} if 0 <= bad < len(operations) else set()
        for place, what in _reached(comparison):
            name = operations[place].name
            did.setdefault(name, set()).add(what)
            sound |= {name} if what is _Did.ITS_WORK and (bad < 0 or place < bad) else set()
    return tuple(
        CallStage(call=name, task=signature.task, stage=_stage(did[name], works=name in sound - wrong))
        for name, signature in lab.grammar.operations.items()
        if name in did
    )


class _Did(Enum):
    ITS_WORK = auto()
    NOTHING = auto()
    NO_RETURN = auto()


def _stage(did: set[_Did], *, works: bool) -> Stage:
    if did == {_Did.NOTHING}:
        return Stage.NOT_YET
    return Stage.WORKS if works else Stage.IN_WORK


def _reached(comparison: Comparison) -> Iterator[tuple[int, _Did]]:
    """Yield the calls that had work to do and what they did, whether or not the calls before them were right."""
    actual = comparison.actual
    for place, reply in enumerate(comparison.expected):
        if not reply.text or reply.refused:
            continue
        if place < len(actual):
            yield place, _Did.NOTHING if actual[place].refused else _Did.ITS_WORK
        elif place == comparison.ended_at and comparison.end is not End.REACHED:
            yield place, _Did.NO_RETURN
