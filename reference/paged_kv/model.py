"""Homework 3 as a `Model`: several engines with their pools, the pokes, and judging from a program's own state."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from reference.delta import WORD, Part, the_rest, two_words, unchanged, whole
from reference.model import CannotGoOn, CannotPoke, Difference, Judgement, Span
from reference.operation import Operation, Reply, Trace
from reference.paged_kv import pokes
from reference.paged_kv.choice import Choice, own_choice
from reference.paged_kv.differences import differences, standing
from reference.paged_kv.engine import Engine, first_fit, llm_init, null_engine
from reference.paged_kv.outcome import Outcome
from reference.paged_kv.pool import GUARD_WORDS, Pool
from reference.paged_kv.readable import readable, reply_text, requested_id
from reference.paged_kv.record import MORE_SEQUENCES, RecordState, ReplyKind, decode, encode, encode_reply
from reference.paged_kv.restored import believed, recounted, restored_engine
from reference.paged_kv.sequence import KV_COUNT

__all__ = ["PagedKV"]

_POKES: dict[str, Callable[..., None]] = {
    "move_l2": pokes.move_l2,
    "unmap": pokes.unmap,
    "set_kv_count": pokes.set_kv_count,
}
_CALLS: dict[str, Callable[..., Outcome]] = {
    "create_sequence": Engine.create_sequence,
    "free_sequence": Engine.free_sequence,
    "fork_sequence": Engine.fork_sequence,
    "append_kv": Engine.append_kv,
}
_MAKERS = frozenset({"create_sequence", "fork_sequence"})
_NO_REGION = array("i")
_NO_OPERATION = Operation(name="")
_NO_CALL = Outcome(Reply(text=""))
_REPLIES = {
    "": encode_reply(ReplyKind.NOTHING, 0),
    "0": encode_reply(ReplyKind.INT, 0),
    "-1": encode_reply(ReplyKind.INT, -1),
    "NULL": encode_reply(ReplyKind.NULL, 0),
    "engine": encode_reply(ReplyKind.ENGINE, 0),
}
_ZERO = _REPLIES["0"]
_encode_sequence = partial(encode_reply, ReplyKind.SEQUENCE)
_MOST_DECODED = 4  # judging one operation looks at the records before, expected and after it several times


class PagedKV:
    """All engines of one trace. A slot is an engine's number in the case file, with the pool made for it."""

    def __init__(self, trace: Trace) -> None:
        self.seed = trace.settings.get("seed", 0)
        self.slots = range(1, max({operation.target or 1 for operation in trace.operations}, default=1) + 1)
        self.engines: dict[int | None, Engine] = {}
        """None is no key: nobody is at home behind a NULL pointer."""
        self.pools: dict[int | None, Pool] = {}
        self.outcome = _NO_CALL
        """Of the last call or poke."""
        self._reply = b""
        self._choose = first_fit
        self._operation = _NO_OPERATION
        self._last = self.slots[-1]
        self._most_sequences = MORE_SEQUENCES + sum(operation.name in _MAKERS for operation in trace.operations)
        self._decoded: dict[bytes, RecordState] = {}
        self._judged: tuple[bytes, RecordState | None] = (b"", None)
        """The record that was judged last, and what the reference had in its place."""
        self._front: list[Part] = []
        """What stands in a record between the reply and the memory: the words themselves that engines keep."""
        self._memory = _NO_REGION
        """The region of the last slot, if it has one."""
        self._gather()

    def apply(self, operation: Operation) -> Reply:
        """Do one operation; see `reference.model.Model`."""
        try:
            call, engine = _CALLS[operation.name], self.engines[operation.target]
        except KeyError:
            outcome = self._apply_otherwise(operation)
            self._gather()
        else:
            outcome = call(engine, *operation.arguments)
        self.outcome, self._operation, self._reply = outcome, operation, b""
        return outcome.reply

    def _apply_otherwise(self, operation: Operation) -> Outcome:
        engine = self.engines.get(operation.target)
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
        return b"".join((self._told(), *self._front, self._memory))

    def delta(self) -> bytes:
        """What the last operation did to the record; see `reference.model.Model`.

        No case makes an engine where one lives, so nobody appends to a pool that has been replaced.
        """
        outcome, operation = self.outcome, self._operation
        if outcome.stored is None or outcome.taken:
            return self._front_and_memory(outcome, operation)

        target = operation.target  # an append in place changes kv_count and one word of the pool
        arguments: tuple[Any, ...] = operation.arguments
        seq_id, kv_data = arguments
        sequence = self.engines[target].active_seqs[seq_id]
        ints, at = sequence.ints, sequence.start + KV_COUNT
        words = len(self._memory) if target == self._last else self._words_from_pool(target)
        return two_words(_ZERO, at - len(ints) - words, ints[at], GUARD_WORDS + outcome.stored - words, kv_data)

    def _front_and_memory(self, outcome: Outcome, operation: Operation) -> bytes:
        """What any other call did."""
        if operation.name == "llm_init" or not self.pools:
            return whole(self.record())  # the memory is another one, or there is none
        if outcome.reply.refused:
            return unchanged(self._told())
        words = len(self._memory)
        if outcome.stored is None or operation.target != self._last:
            return the_rest((self._told(), *self._front), words)
        start, end = (GUARD_WORDS + place for place in outcome.written)
        return the_rest((self._told(), *self._front, self._memory[start:end]), words, start, end)

    def _words_from_pool(self, target: int | None) -> int:
        """Words of a record from this engine's pool on."""
        behind = sum(memoryview(part).nbytes for part in self._parts(self.slots[target:])) // WORD
        return len(self.pools[target].region) + behind

    def _parts(self, slots: Iterable[int]) -> list[Part]:
        return [part for slot in slots for part in encode(self.engines.get(slot), self.pools.get(slot))]

    def _gather(self) -> None:
        """Take the parts of a record from engines and pools: they change as those do, but not when others come."""
        self._front = self._parts(self.slots)
        self._memory = _NO_REGION
        if self._last in self.pools:
            self._memory = self.pools[self._last].region
            self._front.pop()  # a region is the last part of its slot

    def _told(self) -> bytes:
        """The reply as a record begins with it."""
        if not self._reply:
            text = self.outcome.reply.text
            self._reply = _REPLIES.get(text) or _encode_sequence(requested_id(self._operation))
        return self._reply

    def allowed(self) -> tuple[Span, ...]:
        """The slot of an append, or both blocks of its copy; nothing for any other call (Global Constraint 4)."""
        return self.outcome.allowed

    def restore(self, record: bytes) -> None:
        """Take over the state that a program was in; see `reference.model.Model`."""
        self._take_over(self._believed(record))

    def _take_over(self, state: RecordState) -> None:
        self.engines.clear()
        self.pools.clear()
        self._reply = encode_reply(state.reply_kind, state.reply_value)
        for number, slot in zip(self.slots, state.slots, strict=True):
            if slot.pool_bytes >= 0:
                self.pools[number] = Pool(array("i", slot.region), slot.pool_bytes)
            if slot.engine is not None:
                self.engines[number] = engine = restored_engine(slot, self.pools[number], number)
                engine.choose = self._choose
        self._gather()

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare by facets; the blocks that this very call took may be others than the first free ones.

        The choice itself is one difference of facet `choice`; everything else is then compared with what the
        reference makes of the program's own choice, so that only first-fit judges which block was taken. What cannot
        be in the state before the call was wrong then, so it is no difference of this one.
        """
        start = None if before is None else self._believed(before)
        try:
            reply = self._redo(start, operation)
        except CannotGoOn:
            start = recounted(start, self._right_of(before))
            reply = self._redo(start, operation)
        found = self._decode(actual)
        self._check_pools(found)
        choice = self._own_choice(start, operation, found)
        if choice is not None and choice.could_be:
            self._choose = partial(_these, list(choice.blocks))
            try:
                reply = self._redo(start, operation)
            finally:
                self._choose = first_fit
        expected = right = self._decode(self.record())
        known: frozenset[Difference] = frozenset()
        if before is not None and start is not None:
            left = self._decode(before)
            expected = self._with_untouched(right, left, operation, reply)
            known = standing(operation.target or 1, believed=start, left=left)
        others = differences(operation, self.outcome, expected=expected, actual=found, seed=self.seed, known=known)
        self._judged = actual, right
        return Judgement(
            expected=reply,
            actual=Reply(text=reply_text(operation, found.reply_kind, found.reply_value)),
            differences=(*([choice.difference] if choice is not None else []), *others),
        )

    def describe(self, record: bytes) -> dict[str, object]:
        """The record as plain values by the handout's names."""
        return readable(self._decode(record), self.seed)

    def _check_pools(self, found: RecordState) -> None:
        """They are not the program's to choose. Raises `CannotGoOn` for others than the trace makes."""
        made = [self.pools[number].pool_bytes if number in self.pools else -1 for number in self.slots]
        if made != [slot.pool_bytes for slot in found.slots]:
            raise CannotGoOn("a record tells of another pool than llm_init was given")

    def _with_untouched(self, right: RecordState, left: RecordState, operation: Operation, reply: Reply) -> RecordState:
        """What a call must leave alone stays as the program `left` it before, earlier mistakes and all.

        That is every other engine, and this one too when the call must fail.
        """
        fails = reply.refused and operation.name != "llm_init"
        pairs = zip(self.slots, right.slots, left.slots, strict=True)
        slots = [old if fails or number != operation.target else new for number, new, old in pairs]
        return replace(right, slots=slots)

    def _poke(self, engine: Engine | None, operation: Operation) -> Outcome:
        if engine is None:
            raise CannotPoke(f"there is no engine @{operation.target}")
        _POKES[operation.name](engine, *operation.arguments)
        return _NO_CALL

    def _init(self, operation: Operation) -> Outcome:
        """`llm_init SIZE` makes a fresh pool for the slot; `llm_init NULL SIZE` hands over no pool."""
        slot = operation.target or 1
        *null_pool, size = operation.arguments
        assert isinstance(size, int)
        if null_pool:
            return llm_init(None, size)[1]
        self.pools[slot] = Pool.fresh(self.seed, slot, size)
        engine, outcome = llm_init(self.pools[slot].memory, size, slot)
        if engine is not None:
            self.engines[slot] = engine
        elif slot in self.engines:
            self.engines[slot].set_pool_bytes(size)
        return outcome

    def _believed(self, record: bytes) -> RecordState:
        return believed(self._decode(record), self._right_of(record))

    def _right_of(self, record: bytes | None) -> RecordState | None:
        """What the reference had where the program left this record, if that was judged last."""
        actual, right = self._judged
        return right if record is not None and actual == record else None

    def _redo(self, start: RecordState | None, operation: Operation) -> Reply:
        if start is None:
            self.engines.clear()
            self.pools.clear()
        else:
            self._take_over(start)
        try:
            return self.apply(operation)
        except OverflowError as error:
            raise CannotGoOn("a number no longer fits into an int") from error

    def _decode(self, record: bytes) -> RecordState:
        """The record, decoded; nobody may change it, because the last few are kept."""
        if record not in self._decoded:
            try:
                state = decode(record, len(self.slots), sequences=self._most_sequences)
            except ValueError as error:
                raise CannotGoOn(str(error)) from error
            if len(self._decoded) >= _MOST_DECODED:
                self._decoded.pop(next(iter(self._decoded)))
            self._decoded[record] = state
        return self._decoded[record]

    def _own_choice(self, start: RecordState | None, operation: Operation, found: RecordState) -> Choice | None:
        number = (operation.target or 1) - 1
        after = found.slots[number].engine
        before = start.slots[number].engine if start is not None else None
        return own_choice(self.outcome, before, after) if before is not None and after is not None else None


def _these(blocks: list[int], _: array[int], __: int) -> list[int]:
    """A choice of blocks as `first_fit` is one, but made already."""
    return blocks
