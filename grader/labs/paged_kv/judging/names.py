"""How a state is told: the names of its places, the words of a pool, what a pointer leads to, a whole record."""

from __future__ import annotations

from array import array
from typing import Any

from grader.core.plain import UNREADABLE, is_unreadable
from grader.labs.paged_kv.judging.situations import MAKERS, ids_of
from grader.runtime.native import values
from reference.operation import Operation
from reference.oracle import CannotGoOn
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE
from reference.paged_kv.pool import GUARD_BYTES, GUARD_WORDS, magic_words

NEXT_WALK = "the walk along next from active_seqs"
PREV_WALK = "the sequences along prev from active_seqs"
"""The names of how the list ends along `next`, and of whether it is the same along `prev`."""

UNTOUCHED = "untouched"
"""A word of the pool to which nobody has written."""

ENGINE = "engine"
"""What the driver replies for a pointer to an engine."""


def places(record: bytes, targets: int) -> dict[str, int]:  # noqa: ARG001 - a record says itself how many engines it has
    """Return the number of each named word of a record. Raises `ValueError` when it is none."""
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
    """The name of what stands at this path of an engine with its pool; "" for what has none."""
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
    """What stands before the name of a place of that engine."""
    return "" if number == 1 else f"engine @{number}: "


def entry_name(seq_id: int, l1: int, l2: int) -> str:
    """The name of an entry of an L2 table."""
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
    """What a pointer leads to, by what was read of it."""
    if pointer is None or is_unreadable(pointer):
        return "NULL" if pointer is None else str(pointer[UNREADABLE])
    return "allocated"


def pointer_tag(pointer: Any) -> str:
    """The same as a word for known mistakes."""
    if pointer is None or is_unreadable(pointer):
        return "null" if pointer is None else values.pointer_kind(pointer)
    return "ok"


def returned_text(returned: Any, operation: Operation) -> str:
    """What a program returned, in the words of a case file; "" for a poke."""
    if not ids_of(operation) and operation.name not in ("llm_init", "llm_destroy"):
        return ""
    if returned is None:
        return "NULL"
    if is_unreadable(returned):
        return "a pointer to something else"
    if returned == ENGINE or isinstance(returned, int):
        return str(returned)
    right = operation.name in MAKERS and returned == sequence_name(ids_of(operation)[-1])
    return "seq" if right else f"a pointer to {returned}"


def sequence_name(seq_id: int) -> str:
    """What the driver replies for a pointer to a sequence."""
    return f"sequence {seq_id}"


class PoolWords:
    """Names the words of one pool: what is still the magic word prints as *untouched*."""

    def __init__(self, seed: int, slot: int, pool_bytes: int) -> None:
        self.pool_bytes = pool_bytes
        self.magic = array("i", magic_words(seed, slot, pool_bytes))
        self._home = {word: place for place, word in enumerate(self.magic)}

    def text(self, word: int, place: int) -> str:
        """The word as found at `place` of the region."""
        home = self._home.get(word)
        if home is None:
            return str(word)
        return UNTOUCHED if home == place else f"the untouched word of {pool_word_name(home, self.pool_bytes)}"


def described(record: dict[str, Any], seed: int, slots: int) -> dict[str, object]:
    """A record for pictures: {"reply": ..., "engines": {number: ...}, "slots": engines of the whole trace}."""
    engines = {
        int(number): _described(slot, PoolWords(seed, int(number), slot["pool_bytes"]))
        for number, slot in record["state"].items()
    }
    return {"reply": record["reply"], "engines": engines, "slots": slots}


def _described(slot: dict[str, Any], words: PoolWords) -> dict[str, object]:
    """An engine (if it lives), its pool block by block in words, and the places outside of all blocks that changed."""
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
