"""States that a program leaves: the names of their places, and the state from which the next call is judged.

An impossible value (a negative kv_count, an entry that is no block, a table or a list that cannot be read) is replaced
by the oracle's value. It was reported at the call that left it, and the rest of the case can still be judged.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import is_
from typing import Any

from grader.core.model import UNREADABLE, is_unreadable
from grader.runtime.native import values
from reference.oracle import CannotGoOn
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE
from reference.paged_kv.engine import Engine
from reference.paged_kv.pool import GUARD_BYTES, GUARD_WORDS, magic_words
from reference.paged_kv.sequence import UNMAPPED

NEXT_WALK = "the walk along next from active_seqs"
PREV_WALK = "the sequences along prev from active_seqs"
"""Names of places: how the list along `next` ends, and whether the list along `prev` mirrors it."""

UNTOUCHED = "untouched"
"""The text for a word of the pool that was never written."""

ENGINE = "engine"
"""What the driver replies for a pointer to an engine."""


def places(record: bytes, targets: int) -> dict[str, int]:  # noqa: ARG001 - the record shows how many engines it has
    """Return the index of each named word of the record. Raises `ValueError` if `record` is not a record."""
    try:
        state, words = values.decode(record)["state"], values.offsets(record)
        named = {}
        for path, word in words.items():
            name = _place_name(path[2:], state[path[1]]) if len(path) > 2 and path[0] == "state" else ""
            if name:
                named[engine_prefix(int(path[1])) + name] = word
    except (CannotGoOn, IndexError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error
    return named


def _place_name(path: tuple[str, ...], slot: dict[str, Any]) -> str:
    """Return the name of a path within an engine and its pool; "" for a path without a name."""
    match path:
        case ("region", place):
            return pool_word_name(int(place), slot["pool_bytes"])
        case ("engine", "ref_count", block):
            return f"ref_count[{block}]"
        case ("engine", "active_seqs", place):
            return f"sequence {slot['engine']['active_seqs'][int(place)]}: seq_id"
        case ("engine", "sequences", seq_id, part, *entry):
            return f"sequence {seq_id}: {part}" + "".join(f"[{place}]" for place in entry)
        case ("engine", part) if part not in ("active_seqs", "sequences"):
            return {"next": NEXT_WALK, "prev": PREV_WALK}.get(part, part)
    return ""


def engine_prefix(number: int) -> str:
    """Return the prefix for names of places in this engine."""
    return "" if number == 1 else f"engine @{number}: "


def entry_name(seq_id: int, l1: int, l2: int) -> str:
    """Return the name of an entry of an L2 table."""
    return f"sequence {seq_id}: block_table[{l1}][{l2}]"


def pool_word_name(word: int, pool_bytes: int) -> str:
    """Name the word number `word` of a pool's region as the handout would: by block and slot."""
    byte = word * KV_SIZE - GUARD_BYTES
    if byte < 0:
        return f"the {-byte} bytes before the pool"
    block, slot = divmod(byte // KV_SIZE, KV_PER_BLOCK)
    if block < pool_bytes // BLOCK_SIZE:
        return f"block {block}, slot {slot}"
    if byte < pool_bytes:
        return f"the tail of the pool, {byte - pool_bytes // BLOCK_SIZE * BLOCK_SIZE} bytes behind its last block"
    return f"{byte - pool_bytes} bytes behind the pool"


def pointer_name(pointer: Any) -> str:
    """Return in words where a pointer leads."""
    if pointer is None or is_unreadable(pointer):
        return "NULL" if pointer is None else str(pointer[UNREADABLE])
    return "allocated"


def pointer_tag(pointer: Any) -> str:
    """Return the tag that says where a pointer leads. The known mistakes (mistakes.toml) use these tags."""
    if pointer is None or is_unreadable(pointer):
        return "null" if pointer is None else values.pointer_kind(pointer)
    return "ok"


class PoolWords:
    """Names the words of one pool: a word that still is the magic word prints as *untouched*."""

    def __init__(self, seed: int, slot: int, pool_bytes: int) -> None:
        self.pool_bytes = pool_bytes
        self.magic = array("i", magic_words(seed, slot, pool_bytes))
        self._home = {word: place for place, word in enumerate(self.magic)}

    def text(self, word: int, place: int) -> str:
        """Return a word found at `place` of the region, as a text."""
        home = self._home.get(word)
        if home is None:
            return str(word)
        return UNTOUCHED if home == place else f"the untouched word of {pool_word_name(home, self.pool_bytes)}"


def described(record: dict[str, Any], seed: int, slots: int) -> dict[str, object]:
    """Return a record for pictures: {"reply": ..., "engines": {number: ...}, "slots": number of engines}."""
    engines = {
        int(number): _described(slot, PoolWords(seed, int(number), slot["pool_bytes"]))
        for number, slot in record["state"].items()
    }
    return {"reply": record["reply"], "engines": engines, "slots": slots}


def _described(slot: dict[str, Any], words: PoolWords) -> dict[str, object]:
    """Return an engine if there is one, its pool block by block, and the changed places outside of all blocks."""
    region, blocks = slot["region"], slot["pool_bytes"] // BLOCK_SIZE
    texts = [words.text(word, place) for place, word in enumerate(region)]
    starts = [GUARD_WORDS + block * KV_PER_BLOCK for block in range(blocks)]
    inside = range(GUARD_WORDS, GUARD_WORDS + blocks * KV_PER_BLOCK)
    outside = [place for place, text in enumerate(texts) if place not in inside and text != UNTOUCHED]
    return {
        **(slot["engine"] or {}),
        "pool_bytes": slot["pool_bytes"],
        "pool": [texts[start : start + KV_PER_BLOCK] for start in starts],
        "outside": [pool_word_name(place, slot["pool_bytes"]) for place in outside],
    }


State = dict[str, Any]
"""The state of the oracle, or the state that the driver reports."""


class RecoveredEngine(Engine):
    """An engine in a state that a program left, where counts may contradict each other."""

    def __init__(self, pool: memoryview, blocks: int, choice: list[int] | None = None) -> None:
        """`choice` are the blocks that the program took in this call instead of the first free ones."""
        super().__init__(pool, blocks)
        self.choice = choice

    def first_fit(self, needed: int) -> list[int]:
        """Do the same as `Engine.first_fit`. Raises `CannotGoOn` if fewer blocks are free than the program counts."""
        blocks = super().first_fit(needed) if self.choice is None else self.choice
        if len(blocks) < needed:
            raise CannotGoOn("free_local_blocks is above 0, but no block has ref_count 0")
        return blocks


def repaired(state: State, fallback: State | None) -> State:
    """Return a program's state with impossible values replaced by those of `fallback`.

    `fallback` is the oracle's state after the operation that left `state`, None if it is unknown. Raises `CannotGoOn`
    if a value is impossible and its replacement is unknown.
    """
    return {number: _slot(slot, _engine(fallback, number, slot)) for number, slot in state.items()}


def recounted(state: State | None, fallback: State | None) -> State | None:
    """Return a repaired state in which the fallback's counts replace negative counts.

    Whether a block with a negative count is free is unknown, so use this only if the oracle cannot continue otherwise.
    """
    if state is None:
        return None
    return {number: _recounted(slot, _engine(fallback, number, slot)) for number, slot in state.items()}


def _engine(fallback: State | None, number: str, slot: State) -> State | None:
    """Return the engine with this number in `fallback`, if there is one and its pool is as large as that of `slot`."""
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
    """Yield the sequences in the order of the list; if the list is broken, the expected ones that are in it.

    A sequence that the list does not lead to cannot be read, so it counts as missing.
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
            continue  # a call that had to fail made this sequence
        yield seq_id, _sequence(sequence, known, blocks)


def _what_is_wrong_with_the_list(engine: State) -> str:
    if "next" not in engine:
        ids = engine["active_seqs"]
        return f"two sequences have the id {next(seq_id for seq_id in ids if ids.count(seq_id) > 1)}"
    if pointer_tag(engine["next"]) == "shared":
        return "the walk along next from active_seqs never comes back"
    return f"the walk along next from active_seqs meets {pointer_name(engine['next'])}"


def _sequence(left: State, right: State | None, blocks: int) -> State:
    """Return the sequence with impossible values replaced by those of `right`, or by -1 for entries unknown there."""
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
