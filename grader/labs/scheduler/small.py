"""The small engines of scheduler: few blocks for two or three requests, under both policies, with tight budgets."""

from __future__ import annotations

from collections.abc import Sequence

from grader.labs.plain_lab import SmallLines, State
from reference.operation import Operation, written

_MOST_PREEMPTIONS = 2


def _turns(memory: object, state: State, operation: Operation) -> object | None:
    """Alternate `schedule` and `update`, make no `reset` between them, and stop endless preemptions.

    The caller remembers whether an `update` is due.
    """
    if operation.name in ("schedule", "reset") and memory == "due":
        return None
    if operation.name in ("update", "spoil") and memory != "due":
        return None
    if operation.name == "reset" and any(known[2] == _MOST_PREEMPTIONS for known in state["req"].values()):
        return None
    return "due" if operation.name == "schedule" else () if operation.name == "update" else memory


def _scheduler(arguments: str, lines: Sequence[str], *, most: int) -> SmallLines:
    """Return an engine in which requests are added, and added again after they have finished."""
    return SmallLines(
        opening=f"scheduler {arguments}",
        lines=(*lines, "schedule", "update"),
        most=most,
        remember=_turns,
        passing=frozenset({"calls"}),
    )


_ALIKE = ("add a [1,1,1,1] 2 0 0", "add b [1,1,2] 2 0 1")
_EQUAL = ("add a [1,1,1,1] 2 1 0", "add b [1,1,2] 2 1 0")
_TOO_LONG = ("add d [1,1,1,1] 4 0 9", "abort d")
_THREE = ("add a [1,1] 2 0 0", "add b [1,2,1] 1 0 1", "add c [2] 3 0 2")
_URGENT = ("add z [1] 4 5 0", "add a [1] 4 0 1", "add b [1,1,1,1] 1 0 2")
_IN_PARTS = ("add z [1] 4 5 0", "add a [1,1,1,1,1] 1 0 1", "add b [2] 2 5 2")
_ABORTS = ("abort a", "abort b", "reset true", "reset false")

_MEMORY = (-5, 0, 39, 40, 100, 400)
_HUGE = 3 << 53
_FUNCTIONS = SmallLines(
    opening="page_size_bytes 1 2 3 4",
    lines=(
        "page_size_bytes 7 1 10 2",
        *(f"available_kv_memory 101 {percent} 10 7 2" for percent in (0, 1, 58, 100, 101)),
        *(
            f"get_num_blocks {workers} 10 {layers} null"
            for workers in ("[]", "[-5]", "[100,40,99]")
            for layers in (1, 4)
        ),
        *(f"get_num_blocks {workers} 10 1 {blocks}" for workers in ("[]", "[100]") for blocks in (0, 5)),
        *(
            f"{call} {memory} {length} 4 10 {layers}"
            for call in ("check_enough_memory", "estimate_max_model_len")
            for memory in _MEMORY
            for length, layers in ((4, 1), (5, 1), (40, 2))
        ),
        *(f"available_kv_memory {_HUGE} {percent} 1 1 1" for percent in (29, 58)),
        *(f"{call} {_HUGE} 40 4 1 2" for call in ("check_enough_memory", "estimate_max_model_len")),
        f"get_num_blocks [{_HUGE + 1}] 1 1 null",
        *(f"max_concurrency {blocks} {length} 4" for blocks in (0, 9, 100) for length in (1, 4, 10)),
    ),
    most=1,
)
_CROWD = tuple((1 + number * 7 % 5, 1 + number * 3 % 4) for number in range(40))
_LENGTHS = (
    "[]",
    "[[3,2],[2,4],[1,1]]",
    "[[1,4],[1,4],[2,3],[1,4]]",
    "[[6,2],[1,7],[4,1]]",
    "[[1,1],[1,1],[1,1],[1,1],[7,1]]",
)
_SIMULATIONS = SmallLines(
    opening="scheduler 4 2 true 3 8 0 fcfs false",
    lines=[
        f"simulate {policy} {slots} 9 {size} {lengths}"
        for policy in ("max", "pow2", "oracle", "paged")
        for slots, size, of in ((9, 1, _LENGTHS), (13, 2, _LENGTHS), (20, 1, _LENGTHS), (70, 3, [written(_CROWD)]))
        for lengths in of
    ],
    most=1,
)

SMALL = (
    _scheduler("4 2 true 3 8 0 fcfs false", ("spoil", *_ALIKE, *_TOO_LONG, *_ABORTS), most=1600),
    _scheduler("4 2 true 2 3 0 priority false", (*_EQUAL, *_ABORTS), most=1600),
    _scheduler("5 1 false 2 3 2 fcfs false", (*_THREE, "abort c"), most=1200),
    _scheduler("6 1 false 3 3 0 priority false", _URGENT, most=1500),
    _scheduler("7 1 false 3 3 0 priority false", _IN_PARTS, most=400),
    _scheduler("5 2 true 2 4 1 fcfs true", (*_ALIKE, "add c [1,1,2,2] 1 0 2"), most=1500),
    _scheduler("6 1 true 3 2 0 priority true", _THREE, most=1500),
    _FUNCTIONS,
    _SIMULATIONS,
)
