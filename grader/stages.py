"""How far each of the demanded calls is: it works, it is in work, or it has not done yet what it was asked to.

Hidden cases do not count, for their numbers would tell of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto

from grader.compare import REFUSALS, Comparison, End
from grader.lab import Lab
from grader.verdict import CallStage, Stage, Visibility

__all__ = ["stages"]


def stages(comparisons: Sequence[Comparison], first_wrong: Callable[[int], int], lab: Lab) -> tuple[CallStage, ...]:
    """Of each call that had something to do in a public case, and was reached there, in the handout's order.

    `first_wrong` says of a case its first bad operation, -1 where all are well. A call works when it has done its work,
    and nothing goes wrong first in it. One that has not come back is in work: who has not begun crashes nowhere.
    """
    public = [number for number, one in enumerate(comparisons) if one.case.visibility is Visibility.PUBLIC]
    did: dict[str, set[_Did]] = {}
    wrong = set()
    for number in public:
        operations = comparisons[number].case.trace.operations
        wrong |= {operations[place].name for place in [first_wrong(number)] if 0 <= place < len(operations)}
        for name, what in _reached(comparisons[number]):
            did.setdefault(name, set()).add(what)
    return tuple(
        CallStage(call=name, task=signature.task, stage=_stage(did[name], is_wrong=name in wrong))
        for name, signature in lab.grammar.operations.items()
        if name in did
    )


class _Did(Enum):
    ITS_WORK = auto()
    NOTHING = auto()
    NO_RETURN = auto()


def _stage(did: set[_Did], *, is_wrong: bool) -> Stage:
    if did == {_Did.NOTHING}:
        return Stage.NOT_YET
    return Stage.IN_WORK if is_wrong or _Did.ITS_WORK not in did else Stage.WORKS


def _reached(comparison: Comparison) -> Iterator[tuple[str, _Did]]:
    """The calls that had something to do, whether or not what came before them went well, and what they did."""
    operations, actual = comparison.case.trace.operations, comparison.actual
    for place, (operation, reply) in enumerate(zip(operations, comparison.expected, strict=True)):
        if not reply.text or reply.refused:
            continue
        if place < len(actual):
            yield operation.name, _Did.NOTHING if actual[place] in REFUSALS else _Did.ITS_WORK
        elif place == comparison.ended_at and comparison.end is not End.REACHED:
            yield operation.name, _Did.NO_RETURN
