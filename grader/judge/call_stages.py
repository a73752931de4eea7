"""How far each of the demanded calls is: it works, it is in work, or it has not done yet what it was asked to.

Hidden cases do not count, for their numbers would tell of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto

from grader.assignment.lab import Lab
from grader.core.verdict import CallStage, Stage, Visibility
from grader.runtime.comparison import REFUSALS, Comparison, End

__all__ = ["stages"]


def stages(comparisons: Sequence[Comparison], first_wrong: Callable[[int], int], lab: Lab) -> tuple[CallStage, ...]:
    """Of each call that had something to do in a public case, and was reached there, in the handout's order.

    `first_wrong` says of a case its first bad operation, -1 where all are well. A call works when it has done its work
    where nothing was wrong before, and nothing goes wrong first in it. One that has not come back is in work: who has
    not begun crashes nowhere.
    """
    did: dict[str, set[_Did]] = {}
    sound, wrong = set(), set()
    for number, one in enumerate(comparisons):
        if one.case.visibility is not Visibility.PUBLIC:
            continue
        operations, bad = one.case.trace.operations, first_wrong(number)
        wrong |= {operations[bad].name} if 0 <= bad < len(operations) else set()
        for place, what in _reached(one):
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
    """The calls that had something to do, whether or not what came before them went well, and what they did."""
    actual = comparison.actual
    for place, reply in enumerate(comparison.expected):
        if not reply.text or reply.refused:
            continue
        if place < len(actual):
            yield place, _Did.NOTHING if actual[place] in REFUSALS else _Did.ITS_WORK
        elif place == comparison.ended_at and comparison.end is not End.REACHED:
            yield place, _Did.NO_RETURN
