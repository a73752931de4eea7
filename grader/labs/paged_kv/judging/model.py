"""Homework 3 as a `Model`: an operation of a program is judged from the state the program itself was in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from grader.core.judgement import Difference, Judgement
from grader.core.model import MemorySpan
from grader.labs.paged_kv.judging import effects
from grader.labs.paged_kv.judging.describe import described, reply_text
from grader.labs.paged_kv.judging.differences import differences, standing
from grader.labs.paged_kv.judging.effects import BlockChoice, Effects, own_choice
from grader.labs.paged_kv.judging.record import (
    MORE_SEQUENCES,
    RecordState,
    ReplyKind,
    decode,
    encode,
    plain,
    same_state,
    state_of,
)
from grader.labs.paged_kv.judging.recovery import RecoveredEngine, recounted, repaired
from grader.labs.paged_kv.judging.situations import MAKERS, ids_of
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn
from reference.paged_kv.engine import Engine
from reference.paged_kv.oracle import PagedKV

_REFUSALS = ("NULL", "-1")  # Tasks 1 to 5: what a call that must fail returns
_NOTHING = (ReplyKind.NOTHING, 0)
_REPLIES = {
    "": _NOTHING,
    "0": (ReplyKind.INT, 0),
    "-1": (ReplyKind.INT, -1),
    "NULL": (ReplyKind.NULL, 0),
    "engine": (ReplyKind.ENGINE, 0),
}
_MOST_DECODED = 4  # judging one operation looks at the records before and after it several times


def reply_words(operation: Operation, reply: Reply) -> tuple[ReplyKind, int]:
    """Return a reply of the oracle as a record has it."""
    return (ReplyKind.SEQUENCE, ids_of(operation)[-1]) if reply.text == "seq" else _REPLIES[reply.text]


class PagedKVModel:
    """The oracle for one trace, as the grader sees it; see `grader.core.model.Model`."""

    def __init__(self, trace: Trace) -> None:
        self.oracle = PagedKV(trace, restored=self._recovered)
        self.slots = range(1, max({operation.target or 1 for operation in trace.operations}, default=1) + 1)
        self.effects = Effects(Reply(text=""))
        """Of the last call or poke."""
        self._reply = _NOTHING
        self._blocks: list[int] | None = None
        """The blocks that the program took in the call that is judged, in the place of the first free ones."""
        self._most_sequences = MORE_SEQUENCES + sum(
            operation.name in (*MAKERS, "add_sequence") for operation in trace.operations
        )
        self._decoded: dict[bytes, RecordState] = {}
        self._judged: tuple[bytes, RecordState | None] = (b"", None)
        """The record that was judged last, and what the oracle had in its place."""
        self._compared: Callable[[], bytes] = self.record
        """Makes the record with which the operation that was judged last was compared."""

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotPoke` when a poke does not fit, `CannotGoOn` in a broken state."""
        self.effects = effects.apply(self.oracle, operation)
        self._reply = reply_words(operation, self.effects.reply)
        return self.effects.reply

    def record(self) -> bytes:
        """All bytes that a white-box test may see after the last operation (record.py)."""
        return encode(self._state())

    def allowed(self) -> tuple[MemorySpan, ...]:
        """The slot of an append, or both blocks of its copy; nothing for any other call (Global Constraint 4)."""
        return self.effects.allowed

    def worked(self) -> frozenset[str]:
        """Nothing: whatever a program did not show, its cases show with the reference's state (grader.judge.resume)."""
        return frozenset()

    def restore(self, record: bytes) -> None:
        """Take over the state that a program was in. Raises `CannotGoOn` when nothing follows from it."""
        self._take_over(self._repaired(record))

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare by facets; the blocks that this very call took may be others than the first free ones.

        The choice itself is one difference of facet `choice`; everything else is then compared with what the
        oracle makes of the program's own choice, so that only first-fit judges which block was taken. What cannot
        be in the state before the call was wrong then, so it is no difference of this one.
        """
        start = None if before is None else self._repaired(before)
        try:
            right = self._redo(start, operation)
        except CannotGoOn:
            start = recounted(start, self._right_of(before))
            right = self._redo(start, operation)
        after = self._decode(actual)
        _check_pools(right, after)
        choice = self._own_choice(start, operation, after)
        if choice is not None and choice.could_be:
            right = self._redo(start, operation, list(choice.blocks))
        expected = right
        reply = self.effects.reply
        known: frozenset[Difference] = frozenset()
        if before is not None and start is not None:
            left = self._decode(before)
            expected = self._with_untouched(right, left, operation, reply)
            known = standing(operation.target or 1, repaired=start, left=left)
        seed = self.oracle.seed
        others = differences(operation, self.effects, expected=expected, actual=after, seed=seed, known=known)
        self._judged = actual, right
        self._compared = partial(_compared, expected, operation.target or 1, choice, old_faults=bool(known))
        text = reply_text(operation, after.reply_kind, after.reply_value)
        return Judgement(
            expected=reply,
            actual=Reply(text=text, refused=text in _REFUSALS),
            differences=(*([choice.difference] if choice is not None else []), *others),
            unchanged=before is not None and same_state(before, actual),
        )

    def compared(self) -> bytes:
        """The state after the call with the program's own choice of blocks; only the entry of the wrong one differs."""
        return self._compared()

    def describe(self, record: bytes) -> dict[str, object]:
        """The record as plain values by the handout's names."""
        return described(self._decode(record), self.oracle.seed)

    def _recovered(self, pool: memoryview, blocks: int) -> Engine:
        return RecoveredEngine(pool, blocks, self._blocks)

    def _take_over(self, state: RecordState, blocks: list[int] | None = None) -> None:
        self._reply = (state.reply_kind, state.reply_value)
        self._blocks = blocks
        self.oracle.restore(plain(state))

    def _redo(self, start: RecordState | None, operation: Operation, blocks: list[int] | None = None) -> RecordState:
        """Do an operation again from this state, taking these blocks; return the state after it."""
        if start is None:
            self.oracle.restore({})
        else:
            self._take_over(start, blocks)
        self.apply(operation)
        try:
            return self._state()
        except OverflowError as error:
            raise CannotGoOn("a number no longer fits into an int") from error

    def _state(self) -> RecordState:
        return state_of(*self._reply, self.oracle.state(), len(self.slots))

    def _with_untouched(self, right: RecordState, left: RecordState, operation: Operation, reply: Reply) -> RecordState:
        """What a call must leave alone stays as the program `left` it before, earlier mistakes and all.

        That is every other engine, and this one too when the call must fail.
        """
        fails = reply.refused and operation.name != "llm_init"
        pairs = zip(self.slots, right.slots, left.slots, strict=True)
        slots = [old if fails or number != operation.target else new for number, new, old in pairs]
        return replace(right, slots=slots)

    def _repaired(self, record: bytes) -> RecordState:
        return repaired(self._decode(record), self._right_of(record))

    def _right_of(self, record: bytes | None) -> RecordState | None:
        """What the oracle had where the program left this record, if that was judged last."""
        actual, right = self._judged
        return right if record is not None and actual == record else None

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

    def _own_choice(self, start: RecordState | None, operation: Operation, after: RecordState) -> BlockChoice | None:
        number = (operation.target or 1) - 1
        engine = after.slots[number].engine
        before = start.slots[number].engine if start is not None else None
        return own_choice(self.effects, before, engine) if before is not None and engine is not None else None


def _compared(expected: RecordState, number: int, choice: BlockChoice | None, *, old_faults: bool) -> bytes:
    """Return the record that engine `number` was compared with. Raises `CannotGoOn` where it cannot be told alone."""
    if old_faults:
        raise CannotGoOn("a part of the state was impossible before the call; what of it still stands is not judged")
    return encode(expected if choice is None else choice.corrected(expected, number))


def _check_pools(right: RecordState, actual: RecordState) -> None:
    """They are not the program's to choose. Raises `CannotGoOn` for others than the trace makes."""
    if [slot.pool_bytes for slot in right.slots] != [slot.pool_bytes for slot in actual.slots]:
        raise CannotGoOn("a record tells of another pool than llm_init was given")
