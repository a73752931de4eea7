"""Homework 3 as a `Model`: several engines with their pools, the pokes, and judging from a program's own state."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

from reference.model import CannotGoOn, CannotPoke, Difference, Judgement, Span
from reference.operation import Operation, Reply, Trace
from reference.paged_kv import pokes
from reference.paged_kv.choice import Choice, own_choice
from reference.paged_kv.circumstances import explained
from reference.paged_kv.differences import differences, standing
from reference.paged_kv.engine import Engine, llm_init, null_engine
from reference.paged_kv.outcome import Outcome, call
from reference.paged_kv.pool import Pool
from reference.paged_kv.readable import readable, reply_text, requested_id
from reference.paged_kv.record import MORE_SEQUENCES, RecordState, ReplyKind, decode, encode, same_state
from reference.paged_kv.restored import believed, recounted, restored_engine
from reference.paged_kv.words import REFUSALS

__all__ = ["PagedKV"]

_POKES: dict[str, Callable[..., None]] = {
    "move_l2": pokes.move_l2,
    "unmap": pokes.unmap,
    "set_kv_count": pokes.set_kv_count,
}
_MAKERS = frozenset({"create_sequence", "fork_sequence"})
_NO_CALL = Outcome(Reply(text=""))
_REPLIES = {
    "": (ReplyKind.NOTHING, 0),
    "0": (ReplyKind.INT, 0),
    "-1": (ReplyKind.INT, -1),
    "NULL": (ReplyKind.NULL, 0),
    "engine": (ReplyKind.ENGINE, 0),
}
_MOST_DECODED = 4  # judging one operation looks at the records before, expected and after it several times


class PagedKV:
    """All engines of one trace. A slot is an engine's number in the case file, with the pool made for it."""

    def __init__(self, trace: Trace) -> None:
        self.seed = trace.settings.get("seed", 0)
        self.slots = range(1, max({operation.target or 1 for operation in trace.operations}, default=1) + 1)
        self.engines: dict[int | None, Engine] = {}
        """By slot. None is never a key: a NULL pointer leads to no engine."""
        self.pools: dict[int | None, Pool] = {}
        self.outcome = _NO_CALL
        """Of the last call or poke."""
        self._reply = _REPLIES[""]
        self._most_sequences = MORE_SEQUENCES + sum(operation.name in _MAKERS for operation in trace.operations)
        self._decoded: dict[bytes, RecordState] = {}
        self._judged: tuple[bytes, RecordState | None] = (b"", None)
        """The record that was judged last, and what the reference had in its place."""

    def apply(self, operation: Operation) -> Reply:
        """Do one operation; see `reference.model.Model`."""
        self.outcome = self._outcome(operation)
        text = self.outcome.reply.text
        self._reply = (ReplyKind.SEQUENCE, requested_id(operation)) if text == "seq" else _REPLIES[text]
        return self.outcome.reply

    def _outcome(self, operation: Operation) -> Outcome:
        engine = self.engines.get(operation.target)
        if operation.name == "llm_init":
            return self._init(operation)
        if operation.name in _POKES:
            return self._poke(engine, operation)
        if engine is None:
            return Outcome(explained(null_engine(operation.name)))
        if operation.name == "llm_destroy":
            del self.engines[operation.target]
        return call(engine, operation)

    def record(self) -> bytes:
        """All bytes that a white-box test may see after the last operation (record.py)."""
        return encode(*self._reply, [(self.engines.get(slot), self.pools.get(slot)) for slot in self.slots])

    def allowed(self) -> tuple[Span, ...]:
        """The slot of an append, or both blocks of its copy; nothing for any other call (Global Constraint 4)."""
        return self.outcome.allowed

    def restore(self, record: bytes) -> None:
        """Take over the state that a program was in; see `reference.model.Model`."""
        self._take_over(self._believed(record))

    def _take_over(self, state: RecordState, choice: list[int] | None = None) -> None:
        self.engines.clear()
        self.pools.clear()
        self._reply = (state.reply_kind, state.reply_value)
        for number, slot in zip(self.slots, state.slots, strict=True):
            if slot.pool_bytes >= 0:
                self.pools[number] = Pool(array("i", slot.region), slot.pool_bytes)
            if slot.engine is not None:
                self.engines[number] = engine = restored_engine(slot, self.pools[number])
                engine.choice = choice

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare by facets; the blocks that this very call took may be others than the first free ones.

        The choice itself is one difference of facet `choice`; everything else is then compared with what the
        reference makes of the program's own choice, so that only first-fit judges which block was taken. What cannot
        be in the state before the call was wrong then, so it is no difference of this one.
        """
        start = None if before is None else self._believed(before)
        try:
            right = self._redo(start, operation)
        except CannotGoOn:
            start = recounted(start, self._right_of(before))
            right = self._redo(start, operation)
        found = self._decode(actual)
        self._check_pools(found)
        choice = self._own_choice(start, operation, found)
        if choice is not None and choice.could_be:
            right = self._redo(start, operation, list(choice.blocks))
        expected = right
        reply = self.outcome.reply
        known: frozenset[Difference] = frozenset()
        if before is not None and start is not None:
            left = self._decode(before)
            expected = self._with_untouched(right, left, operation, reply)
            known = standing(operation.target or 1, believed=start, left=left)
        others = differences(operation, self.outcome, expected=expected, actual=found, seed=self.seed, known=known)
        self._judged = actual, right
        text = reply_text(operation, found.reply_kind, found.reply_value)
        return Judgement(
            expected=reply,
            actual=Reply(text=text, refused=text in REFUSALS),
            differences=(*([choice.difference] if choice is not None else []), *others),
            unchanged=before is not None and same_state(before, actual),
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
            return Outcome(explained(llm_init(None, size)[1]))
        self.pools[slot] = Pool.fresh(self.seed, slot, size)
        engine, reply = llm_init(self.pools[slot].memory, size)
        if engine is not None:
            self.engines[slot] = engine
        return Outcome(explained(reply))

    def _believed(self, record: bytes) -> RecordState:
        return believed(self._decode(record), self._right_of(record))

    def _right_of(self, record: bytes | None) -> RecordState | None:
        """What the reference had where the program left this record, if that was judged last."""
        actual, right = self._judged
        return right if record is not None and actual == record else None

    def _redo(self, start: RecordState | None, operation: Operation, choice: list[int] | None = None) -> RecordState:
        """Do an operation again from this state, taking the blocks of the `choice`; the state after it."""
        if start is None:
            self.engines.clear()
            self.pools.clear()
        else:
            self._take_over(start, choice)
        self.apply(operation)
        try:
            return self._decode(self.record())
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
