"""Homework 3 as a `Model`: several engines with their pools, the pokes, and judging from a program's own state."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from reference.model import Access, CannotGoOn, CannotPoke, Difference, Judgement, Span
from reference.operation import Operation, Reply, Trace
from reference.paged_kv import pokes
from reference.paged_kv.differences import choice_difference, differences
from reference.paged_kv.engine import NO_EFFECT, Engine, first_fit, llm_init, null_engine
from reference.paged_kv.pool import Pool
from reference.paged_kv.readable import readable
from reference.paged_kv.record import (
    EngineState,
    RecordState,
    ReplyKind,
    SequenceState,
    decode,
    encode,
    encode_reply,
)
from reference.paged_kv.restored import restored_engine
from reference.paged_kv.sequence import UNMAPPED, Place
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE

__all__ = ["PagedKV"]

_POKES: dict[str, Callable[..., None]] = {
    "move_l2": pokes.move_l2,
    "unmap": pokes.unmap,
    "set_kv_count": pokes.set_kv_count,
}
_CALLS: dict[str, Callable[..., Reply]] = {
    "create_sequence": Engine.create_sequence,
    "free_sequence": Engine.free_sequence,
    "fork_sequence": Engine.fork_sequence,
    "append_kv": Engine.append_kv,
}
_POKED = Reply(text="")
_REPLIES = {
    "": encode_reply(ReplyKind.NOTHING, 0),
    "0": encode_reply(ReplyKind.INT, 0),
    "-1": encode_reply(ReplyKind.INT, -1),
    "NULL": encode_reply(ReplyKind.NULL, 0),
    "engine": encode_reply(ReplyKind.ENGINE, 0),
}
_MOST_DECODED = 4  # judging one operation looks at the records before, expected and after it several times


class PagedKV:
    """All engines of one trace. A slot is an engine's number in the case file, with the pool made for it."""

    def __init__(self, trace: Trace) -> None:
        self.seed = trace.settings.get("seed", 0)
        self.slots = range(1, max({operation.target or 1 for operation in trace.operations}, default=1) + 1)
        self.engines: dict[int, Engine] = {}
        self.pools: dict[int, Pool] = {}
        self.effect = NO_EFFECT
        """Which bytes of the pool the last call was allowed to touch."""
        self._target = 0
        self._reply = _REPLIES[""]
        self._choose: Callable[[array[int]], int] = first_fit
        self._parts: list[bytes | bytearray | array[int]] | None = None
        """The parts of the last record, while all but the reply are those of the next one, too (see `encode`)."""
        self._decoded: dict[bytes, RecordState] = {}

    def apply(self, operation: Operation) -> Reply:
        """Do one operation; see `reference.model.Model`."""
        name = operation.name
        self._target = operation.target or 0
        engine = self.engines.get(self._target)
        if engine is not None and name in _CALLS:
            engine.choose = self._choose
            engine.effect = NO_EFFECT
            reply = _CALLS[name](engine, *operation.arguments)
            self.effect = engine.effect
        else:
            self.effect = NO_EFFECT
            reply = self._apply_otherwise(engine, operation)
        if name != "append_kv":  # which changes ints where they are
            self._parts = None
        self._reply = _REPLIES.get(reply.text) or encode_reply(ReplyKind.SEQUENCE, _requested_id(operation))
        return reply

    def _apply_otherwise(self, engine: Engine | None, operation: Operation) -> Reply:
        if operation.name == "llm_init":
            return self._init(operation)
        if operation.name in _POKES:
            return self._poke(engine, operation)
        if engine is None:
            return null_engine(operation.name)
        del self.engines[self._target]
        return engine.llm_destroy()

    def record(self) -> bytes:
        """All bytes that a white-box test may see after the last operation (record.py)."""
        parts = self._parts
        if parts is None:
            parts = [self._reply]
            for slot in self.slots:
                parts += encode(self.engines.get(slot), self.pools.get(slot))
            self._parts = parts
        parts[0] = self._reply
        return b"".join(parts)

    def allowed(self) -> tuple[Span, ...]:
        """The slot of an append, or both blocks of its copy; nothing for any other call (Global Constraint 4)."""
        effect = self.effect
        if effect.stored is None:
            return ()
        if effect.copied is None:
            return _one_word(self._target, effect.stored)
        old, new = effect.copied
        return (
            Span(self._target, new * BLOCK_SIZE, BLOCK_SIZE, Access.WRITE),
            Span(self._target, old * BLOCK_SIZE, BLOCK_SIZE, Access.READ),
        )

    def restore(self, record: bytes) -> None:
        """Take over the state that a program was in; see `reference.model.Model`."""
        state = self._decode(record)
        self.engines.clear()
        self.pools.clear()
        self._parts = None
        self._reply = encode_reply(state.reply_kind, state.reply_value)
        for number, slot in zip(self.slots, state.slots, strict=True):
            if slot.pool_bytes >= 0:
                self.pools[number] = Pool(bytearray(slot.region), slot.pool_bytes)
            if slot.engine is not None:
                self.engines[number] = restored_engine(slot, self.pools[number])

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare by facets; the blocks that this very call took may be others than the first free ones.

        The choice itself is one difference of facet `choice`; everything else is then compared with what the
        reference makes of the program's own choice, so that only first-fit judges which block was taken.
        """
        reply = self._redo(before, operation)
        found = self._decode(actual)
        wanted = [block for _, _, block in self.effect.taken]
        taken = self._own_choice(before, operation, found)
        choice: list[Difference] = []
        if taken is not None:
            choice = [choice_difference(self.effect, wanted, taken)]
            blocks = iter(taken)
            self._choose = lambda _: next(blocks)
            try:
                reply = self._redo(before, operation)
            finally:
                self._choose = first_fit
        expected = self._decode(self._record_of_ints())
        if before is not None:
            expected = self._with_untouched(expected, before, operation, reply)
        others = differences(operation, reply, self.effect, expected=expected, actual=found, seed=self.seed)
        return Judgement(
            expected=reply,
            actual=Reply(text=_reply_text(operation, found.reply_kind, found.reply_value)),
            differences=(*choice, *others),
        )

    def describe(self, record: bytes) -> dict[str, object]:
        """The record as plain values by the handout's names."""
        return readable(self._decode(record), self.seed)

    def _with_untouched(self, expected: RecordState, before: bytes, operation: Operation, reply: Reply) -> RecordState:
        """What a call must leave alone stays as the program had it, earlier mistakes and all.

        That is every other engine, and this one too when the call must fail.
        """
        fails = reply.refused and operation.name != "llm_init"
        pairs = zip(self.slots, expected.slots, self._decode(before).slots, strict=True)
        slots = [old if fails or number != operation.target else new for number, new, old in pairs]
        return replace(expected, slots=slots)

    def _record_of_ints(self) -> bytes:
        try:
            return self.record()
        except struct.error as error:
            raise CannotGoOn("a number no longer fits into an int") from error

    def _poke(self, engine: Engine | None, operation: Operation) -> Reply:
        if engine is None:
            raise CannotPoke(f"there is no engine @{operation.target}")
        _POKES[operation.name](engine, *operation.arguments)
        return _POKED

    def _init(self, operation: Operation) -> Reply:
        """`llm_init SIZE` makes a fresh pool for the slot; `llm_init NULL SIZE` hands over no pool."""
        slot = operation.target or 1
        *null_pool, size = operation.arguments
        assert isinstance(size, int)
        if null_pool:
            return llm_init(None, size)[1]
        self.pools[slot] = Pool.fresh(self.seed, slot, size)
        engine, reply = llm_init(self.pools[slot].memory, size)
        if engine is not None:
            self.engines[slot] = engine
        return reply

    def _redo(self, before: bytes | None, operation: Operation) -> Reply:
        if before is None:
            self.engines.clear()
            self.pools.clear()
            self._parts = None
        else:
            self.restore(before)
        try:
            return self.apply(operation)
        except OverflowError as error:
            raise CannotGoOn("a number no longer fits into an int") from error

    def _decode(self, record: bytes) -> RecordState:
        """The record, decoded; nobody may change it, because the last few are kept."""
        if record not in self._decoded:
            try:
                state = decode(record, len(self.slots))
            except ValueError as error:
                raise CannotGoOn(str(error)) from error
            if len(self._decoded) >= _MOST_DECODED:
                self._decoded.pop(next(iter(self._decoded)))
            self._decoded[record] = state
        return self._decoded[record]

    def _own_choice(self, before: bytes | None, operation: Operation, found: RecordState) -> list[int] | None:
        """The blocks that the program took in this call, if they were free and are not the first free ones."""
        number = (operation.target or 1) - 1
        engine = found.slots[number].engine
        if engine is None or before is None or not self.effect.taken:
            return None
        earlier = self._decode(before).slots[number].engine
        assert earlier is not None
        sequences = {sequence.seq_id: sequence for sequence in engine.sequences}
        chosen = [_mapped(sequences.get(seq_id), logical) for seq_id, logical, _ in self.effect.taken]
        if not all(_was_taken(block, earlier, engine) for block in chosen) or len(set(chosen)) < len(chosen):
            return None
        return chosen if chosen != [block for _, _, block in self.effect.taken] else None


@lru_cache(maxsize=1 << 14)
def _one_word(target: int, start: int) -> tuple[Span, ...]:
    """Four bytes, to be written."""
    return (Span(target, start, KV_SIZE, Access.WRITE),)


def _was_taken(block: int, before: EngineState, after: EngineState) -> bool:
    """Was this block free before the call, and is it in use after it?"""
    known = 0 <= block < min(len(before.ref_count), len(after.ref_count))
    return known and before.ref_count[block] == 0 != after.ref_count[block]


def _mapped(sequence: SequenceState | None, logical: int) -> int:
    place = Place.of(logical * KV_PER_BLOCK)
    table = sequence.tables[place.l1] if sequence is not None and sequence.tables else None
    return UNMAPPED if table is None else table[place.l2]


def _requested_id(operation: Operation) -> int:
    """The seq_id that a sequence returned by this call must have."""
    requested = operation.arguments[-1 if operation.name == "fork_sequence" else 0]
    assert isinstance(requested, int)
    return requested


def _reply_text(operation: Operation, kind: ReplyKind, value: int) -> str:
    """What a program returned, in the words of a case file."""
    if kind is ReplyKind.INT:
        return str(value)
    if kind is ReplyKind.SEQUENCE:
        returns_sequence = operation.name in ("create_sequence", "fork_sequence")
        right = returns_sequence and value == _requested_id(operation)
        return "seq" if right else f"a pointer to sequence {value}"
    words = {ReplyKind.NOTHING: "", ReplyKind.NULL: "NULL", ReplyKind.ENGINE: "engine"}
    return words.get(kind, "a pointer to something else")
