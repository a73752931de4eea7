"""Describe a record in plain values: for pictures, for `grade explain`, and for the texts of differences."""

from __future__ import annotations

from array import array

from grader.labs.paged_kv.judging.record import (
    EngineState,
    Pointer,
    RecordState,
    ReplyKind,
    SequenceState,
    Slot,
    pool_word_name,
)
from grader.labs.paged_kv.judging.situations import MAKERS, ids_of
from reference.operation import Operation
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK
from reference.paged_kv.pool import GUARD_WORDS, magic_words

UNTOUCHED = "untouched"
"""A word of the pool to which nobody has written."""

_POINTERS = {
    Pointer.OK: "allocated",
    Pointer.NULL: "NULL",
    Pointer.STRAY: "a pointer to memory that was never allocated",
    Pointer.SMALL: "a pointer to an allocation that is too small",
    Pointer.FREED: "a pointer to freed memory",
    Pointer.SHARED: "a pointer to a table that is already used elsewhere",
}


def pointer_name(pointer: Pointer) -> str:
    """A pointer as the table of allocations knows it."""
    return _POINTERS[pointer]


def reply_text(operation: Operation, kind: ReplyKind, value: int) -> str:
    """What a program returned, in the words of a case file."""
    if kind is ReplyKind.INT:
        return str(value)
    if kind is ReplyKind.SEQUENCE:
        right = operation.name in MAKERS and value == ids_of(operation)[-1]
        return "seq" if right else f"a pointer to sequence {value}"
    words = {ReplyKind.NOTHING: "", ReplyKind.NULL: "NULL", ReplyKind.ENGINE: "engine"}
    return words.get(kind, "a pointer to something else")


class PoolWords:
    """Names the words of one pool: what is still the magic word prints as *untouched*."""

    def __init__(self, seed: int, slot: int, pool_bytes: int) -> None:
        self.pool_bytes = pool_bytes
        self.magic = array("I", magic_words(seed, slot, pool_bytes))
        self._home = {word: place for place, word in enumerate(self.magic)}

    def text(self, word: int, place: int) -> str:
        """The unsigned 32-bit `word` as found at `place` of the region."""
        home = self._home.get(word)
        if home is None:
            return str(word - (1 << 32) if word >> 31 else word)
        if home == place:
            return UNTOUCHED
        return f"the untouched word of {pool_word_name(home, self.pool_bytes)}"

    def block(self, region: bytes, block: int) -> list[str]:
        """The slots of a block."""
        first = GUARD_WORDS + block * KV_PER_BLOCK
        words = array("I", region)
        return [self.text(words[place], place) for place in range(first, first + KV_PER_BLOCK)]


def described(state: RecordState, seed: int) -> dict[str, object]:
    """A whole record as plain values: {"reply": ..., "engines": {number: ...}, "slots": engines of the whole trace}."""
    return {
        "reply": {"kind": state.reply_kind.name, "value": state.reply_value},
        "engines": {
            number: _engine(slot, PoolWords(seed, number, slot.pool_bytes))
            for number, slot in enumerate(state.slots, start=1)
            if slot.pool_bytes >= 0
        },
        "slots": len(state.slots),
    }


def _engine(slot: Slot, words: PoolWords) -> dict[str, object]:
    region = array("I", slot.region)
    blocks = slot.pool_bytes // BLOCK_SIZE
    inside = range(GUARD_WORDS, GUARD_WORDS + blocks * KV_PER_BLOCK)
    outside = [place for place in range(len(region)) if place not in inside and region[place] != words.magic[place]]
    pool: dict[str, object] = {
        "pool_bytes": slot.pool_bytes,
        "pool": [words.block(slot.region, block) for block in range(blocks)],
        "outside": [pool_word_name(place, slot.pool_bytes) for place in outside],
    }
    return pool if slot.engine is None else {**_management(slot.engine), **pool}


def _management(engine: EngineState) -> dict[str, object]:
    return {
        "total_local_blocks": engine.total_local_blocks,
        "free_local_blocks": engine.free_local_blocks,
        "ref_count": list(engine.ref_count),
        "list": pointer_name(engine.list_pointer) if engine.list_pointer is not Pointer.OK else "ring",
        "mirrored": bool(engine.mirrored),
        "active_seqs": [_sequence(sequence) for sequence in engine.sequences],
    }


def _sequence(sequence: SequenceState) -> dict[str, object]:
    tables = {
        slot: list(table) if table is not None else pointer_name(pointer)
        for slot, (pointer, table) in enumerate(zip(sequence.l1, sequence.tables, strict=True))
        if pointer is not Pointer.NULL
    }
    return {"seq_id": sequence.seq_id, "kv_count": sequence.kv_count, "block_table": tables}
