"""The state from which the next call of a program is judged, recovered from what the program left.

What is impossible (a negative kv_count, an entry that is no block, a table or a list that cannot be read) is replaced
by what the oracle has in its place: it was wrong when the program left it so, and the case goes on for everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_
from typing import Any

from grader.core.plain import is_unreadable
from grader.labs.paged_kv.judging.names import pointer_name, pointer_tag
from reference.oracle import CannotGoOn
from reference.paged_kv.constants import BLOCK_SIZE
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED

State = dict[str, Any]
"""The state of the oracle, or what the driver says of one."""


class RecoveredEngine(Engine):
    """An engine in a state that a program left, where counts may contradict each other."""

    def __init__(self, pool: memoryview, blocks: int, choice: list[int] | None = None) -> None:
        """`choice` are the blocks that the program took in this call, in the place of the first free ones."""
        super().__init__(pool, blocks)
        self.choice = choice

    def first_fit(self, needed: int) -> list[int]:
        """As in `Engine`. Raises `CannotGoOn` when fewer blocks are free than the program counts."""
        blocks = super().first_fit(needed) if self.choice is None else self.choice
        if len(blocks) < needed:
            raise CannotGoOn("free_local_blocks is above 0, but no block has ref_count 0")
        return blocks


def repaired(state: State, fallback: State | None) -> State:
    """Return a program's state with impossible values replaced by those of `fallback`; what is possible is the same.

    `fallback` is what the oracle had in its place, None if that is unknown. Raises `CannotGoOn` when something is
    impossible and nothing is known to replace it.
    """
    return {number: _slot(slot, _engine(fallback, number, slot)) for number, slot in state.items()}


def recounted(state: State | None, fallback: State | None) -> State | None:
    """Return a repaired state with the fallback's count wherever the program's is negative.

    Whether such a block is free is unknown, so this is done only when nothing follows from the program's counts.
    """
    if state is None:
        return None
    return {number: _recounted(slot, _engine(fallback, number, slot)) for number, slot in state.items()}


def _engine(fallback: State | None, number: str, slot: State) -> State | None:
    """The fallback's engine over a pool of the same size."""
    right = (fallback or {}).get(number)
    return right["engine"] if right is not None and right["pool_bytes"] == slot["pool_bytes"] else None


def _recounted(slot: State, right: State | None) -> State:
    if slot["engine"] is None or right is None:
        return slot
    counts = zip(slot["engine"]["ref_count"], right["ref_count"], strict=True)
    ref_count = [there if here < 0 else here for here, there in counts]
    return {**slot, "engine": {**slot["engine"], "ref_count": ref_count}}


def _slot(slot: State, right: State | None) -> State:
    left = slot["engine"]
    if left is None:
        return slot
    engine = {name: value for name, value in left.items() if name != "next"}
    if not isinstance(left["ref_count"], list):
        if right is None:
            raise CannotGoOn(f"ref_count is {pointer_name(left['ref_count'])}")
        engine["ref_count"] = right["ref_count"]
    engine["sequences"] = dict(_sequences(left, right, slot["pool_bytes"] // BLOCK_SIZE))
    engine["active_seqs"] = list(map(int, engine["sequences"]))
    same = engine.keys() == left.keys() and engine["ref_count"] is left["ref_count"]
    both = engine["sequences"].values(), left["sequences"].values()
    if same and engine["active_seqs"] == left["active_seqs"] and all(map(is_, *both)):
        return slot
    return {**slot, "engine": engine}


def _sequences(left: State, right: State | None, blocks: int) -> Iterator[tuple[str, State]]:
    """The sequences in the order of the list; of a list that cannot be, those of it that should be there.

    What the list does not lead to cannot be looked at: such a sequence counts as missing.
    """
    there, wanted = left["sequences"], right["sequences"] if right is not None else {}
    in_order = list(map(str, left["active_seqs"]))
    if "next" in left or len(there) < len(in_order):
        if right is None:
            raise CannotGoOn(_what_is_wrong_with_the_list(left))
        in_order = [seq_id for seq_id in wanted if seq_id in there]
    for seq_id in in_order:
        sequence, known = there[seq_id], wanted.get(seq_id)
        if known is None and (sequence["kv_count"] < 0 or not isinstance(sequence["block_table"], list)):
            if right is None:
                raise CannotGoOn(f"sequence {seq_id} has a negative kv_count or a block_table that cannot be read")
            continue  # a call that had to fail made it
        yield seq_id, _sequence(sequence, known, blocks)


def _what_is_wrong_with_the_list(engine: State) -> str:
    if "next" not in engine:
        ids = engine["active_seqs"]
        return f"two sequences have the id {next(seq_id for seq_id in ids if ids.count(seq_id) > 1)}"
    if pointer_tag(engine["next"]) == "shared":
        return "the walk along next from active_seqs never comes back"
    return f"the walk along next from active_seqs meets {pointer_name(engine['next'])}"


def _sequence(left: State, right: State | None, blocks: int) -> State:
    """Return the sequence with unreadable tables and ids out of range replaced; unknown entries become -1."""
    kv_count, tables = left["kv_count"], left["block_table"]
    if right is not None and kv_count < 0:
        kv_count = right["kv_count"]
    if right is not None and not isinstance(tables, list):
        tables = right["block_table"]
    wanted = right["block_table"] if right is not None else [None] * len(tables)
    readable = [_table(table, known, blocks) for table, known in zip(tables, wanted, strict=True)]
    if kv_count == left["kv_count"] and tables is left["block_table"] and all(map(is_, readable, tables)):
        return left
    return {"kv_count": kv_count, "block_table": readable}


def _table(table: Any, right: list[int] | None, blocks: int) -> list[int] | None:
    if table is None or is_unreadable(table):
        return None if table is None else right
    if min(table) >= UNMAPPED and max(table) < blocks:
        return table  # type: ignore[no-any-return]
    known = right if right is not None else [UNMAPPED] * len(table)
    return [here if UNMAPPED <= here < blocks else there for here, there in zip(table, known, strict=True)]
