"""Homework 3 as a `Model`: several engines with their pools, the pokes, and judging from a program's own state."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from reference.delta import WORD, Part, the_rest, two_words, unchanged, whole
from reference.model import Access, CannotGoOn, CannotPoke, Difference, Judgement, Span
from reference.operation import Operation, Reply, Trace
from reference.paged_kv import pokes
from reference.paged_kv.choice import choice_difference, own_choice
from reference.paged_kv.differences import differences
from reference.paged_kv.engine import NO_EFFECT, Engine, first_fit, llm_init, null_engine
from reference.paged_kv.pool import GUARD_BYTES, Pool
from reference.paged_kv.readable import readable
from reference.paged_kv.record import (
    RecordState,
    ReplyKind,
    decode,
    encode,
    encode_reply,
)
from reference.paged_kv.restored import restored_engine
from reference.paged_kv.sequence import KV_COUNT
from reference.paged_kv.words import BLOCK_SIZE, KV_SIZE

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
_NO_REGION = bytearray()
_NOTHING_YET = Operation(name="")
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
        self.engines: dict[int | None, Engine] = {}
        """None is no key: nobody is at home behind a NULL pointer."""
        self.pools: dict[int | None, Pool] = {}
        self.effect = NO_EFFECT
        """Which bytes of the pool the last call was allowed to touch."""
        self._reply = _REPLIES[""]
        self._choose = first_fit
        self._operation = _NOTHING_YET
        self._refused = False
        self._last = self.slots[-1]
        self._decoded: dict[bytes, RecordState] = {}

    def apply(self, operation: Operation) -> Reply:
        """Do one operation; see `reference.model.Model`."""
        engine = self.engines.get(operation.target)
        call = _CALLS.get(operation.name)
        if engine is not None and call is not None:
            engine.effect = NO_EFFECT
            reply = call(engine, *operation.arguments)
            self.effect = engine.effect
        else:
            self.effect = NO_EFFECT
            reply = self._apply_otherwise(engine, operation)
        self._operation, self._refused = operation, reply.refused
        self._reply = _REPLIES.get(reply.text) or encode_reply(ReplyKind.SEQUENCE, _requested_id(operation))
        return reply

    def _apply_otherwise(self, engine: Engine | None, operation: Operation) -> Reply:
        if operation.name == "llm_init":
            return self._init(operation)
        if operation.name in _POKES:
            return self._poke(engine, operation)
        if engine is None:
            return null_engine(operation.name)
        del self.engines[operation.target]
        return engine.llm_destroy()

    def record(self) -> bytes:
        """All bytes that a white-box test may see after the last operation (record.py)."""
        return b"".join(self._parts())

    def delta(self) -> bytes:
        """What the last operation did to the record; see `reference.model.Model`.

        No case makes an engine where one lives, so nobody appends to a pool that has been replaced.
        """
        operation, effect = self._operation, self.effect
        if effect.stored is not None and not effect.taken:
            return self._two_words(effect.stored)
        if operation.name == "llm_init" or not self.pools:
            return whole(self.record())  # the memory is another one, or there is none
        if self._refused:
            return unchanged(self._reply)
        parts = self._parts()
        region = self.pools[self._last].region if self._last in self.pools else _NO_REGION
        front, memory = parts[:-1] if region else parts, len(region) // WORD
        if effect.written is None or operation.target != self._last:
            return the_rest(front, memory)
        start, end = effect.written
        return the_rest(front, memory, (GUARD_BYTES + start) // WORD, region[GUARD_BYTES + start : GUARD_BYTES + end])

    def _two_words(self, stored: int) -> bytes:
        """An append in place changes kv_count and one word of the pool."""
        target = self._operation.target
        arguments: tuple[Any, ...] = self._operation.arguments
        seq_id, kv_data = arguments
        sequence = self.engines[target].active_seqs[seq_id]
        ints, at = sequence.ints, sequence.start + KV_COUNT
        region = -(len(self.pools[target].region) // WORD)
        if target != self._last:
            region -= self._words_behind(target)
        place = region + (GUARD_BYTES + stored) // WORD
        return two_words(self._reply, region - len(ints) + at, ints[at], place, kv_data)

    def _words_behind(self, target: int | None) -> int:
        """Words of a record behind the slot of this engine."""
        parts = [part for slot in self.slots[target:] for part in encode(self.engines.get(slot), self.pools.get(slot))]
        return sum(memoryview(part).nbytes for part in parts) // WORD

    def _parts(self) -> list[Part]:
        """The record, in parts to be joined."""
        parts: list[Part] = [self._reply]
        for slot in self.slots:
            parts += encode(self.engines.get(slot), self.pools.get(slot))
        return parts

    def allowed(self) -> tuple[Span, ...]:
        """The slot of an append, or both blocks of its copy; nothing for any other call (Global Constraint 4)."""
        effect, target = self.effect, self._operation.target
        if effect.stored is None or target is None:
            return ()
        if effect.copied is None:
            return _one_word(target, effect.stored)
        old, new = effect.copied
        return (
            Span(target, new * BLOCK_SIZE, BLOCK_SIZE, Access.WRITE),
            Span(target, old * BLOCK_SIZE, BLOCK_SIZE, Access.READ),
        )

    def restore(self, record: bytes) -> None:
        """Take over the state that a program was in; see `reference.model.Model`."""
        state = self._decode(record)
        self.engines.clear()
        self.pools.clear()
        self._reply = encode_reply(state.reply_kind, state.reply_value)
        for number, slot in zip(self.slots, state.slots, strict=True):
            if slot.pool_bytes >= 0:
                self.pools[number] = Pool(bytearray(slot.region), slot.pool_bytes)
            if slot.engine is not None:
                self.engines[number] = engine = restored_engine(slot, self.pools[number])
                engine.choose = self._choose

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
            self._choose = partial(_these, taken)
            try:
                reply = self._redo(before, operation)
            finally:
                self._choose = first_fit
        expected = self._decode(self.record())
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
        elif slot in self.engines:
            self.engines[slot].set_pool_bytes(size)
        return reply

    def _redo(self, before: bytes | None, operation: Operation) -> Reply:
        if before is None:
            self.engines.clear()
            self.pools.clear()
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
        after = found.slots[number].engine
        if after is None or before is None or not self.effect.taken:
            return None
        earlier = self._decode(before).slots[number].engine
        assert earlier is not None
        return own_choice(self.effect, earlier, after)


@lru_cache(maxsize=1 << 14)
def _one_word(target: int, start: int) -> tuple[Span, ...]:
    """Four bytes, to be written."""
    return (Span(target, start, KV_SIZE, Access.WRITE),)


def _these(blocks: list[int], _: array[int], __: int) -> list[int]:
    """A choice of blocks as `first_fit` is one, but made already."""
    return blocks


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
