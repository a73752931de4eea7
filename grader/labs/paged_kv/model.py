"""Homework 3 as a `Model`: an operation of a program is judged from the state the program itself was in.

The record that the driver writes is decoded, impossible values are replaced (`states`), the oracle plays the next call
from there (`effects`), and each difference gets a facet, tags and a sentence (`differences`, `wrong_target`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

from grader.core.judgement import Difference, Judgement
from grader.core.model import MemorySpan, is_unreadable
from grader.labs.paged_kv import effects
from grader.labs.paged_kv.differences import differences, standing
from grader.labs.paged_kv.effects import MAKERS, BlockChoice, Effects, ids_of, own_choice
from grader.labs.paged_kv.states import ENGINE, RecoveredEngine, State, described, recounted, repaired
from grader.runtime.native import values
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn
from reference.paged_kv.constants import BLOCK_SIZE, L1_PT_SIZE, L2_PT_SIZE
from reference.paged_kv.engine import Engine
from reference.paged_kv.oracle import PagedKV
from reference.paged_kv.pool import region_words

MORE_SEQUENCES = 4
"""A list is read up to this many sequences more than the calls could have made; driver.c has the same number."""

_REFUSALS = ("NULL", "-1")  # Tasks 1 to 5: what a call that must fail returns
_RETURNED = {"": None, "0": 0, "-1": -1, "NULL": None, "engine": "engine"}
_MOST_DECODED = 4  # judging one operation looks at the records before and after it several times


def sequence_name(seq_id: int) -> str:
    """Return what the driver replies for a pointer to a sequence."""
    return f"sequence {seq_id}"


def returned_text(returned: Any, operation: Operation) -> str:
    """Return what a program returned, in the words of a case file; "" for a poke."""
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


def record_of(operation: Operation, reply: Reply, state: State) -> State:
    """Return the record that the driver writes for this reply and state of the oracle."""
    returned = sequence_name(ids_of(operation)[-1]) if reply.text == "seq" else _RETURNED[reply.text]
    return {"state": state, "reply": {"returned": returned}}


class PagedKVModel:
    """The oracle for one trace, as the grader sees it; see `grader.core.model.Model`."""

    def __init__(self, trace: Trace) -> None:
        self.oracle = PagedKV(trace, restored=self._recovered)
        self.slots = range(1, max({operation.target or 1 for operation in trace.operations}, default=1) + 1)
        self.effects = Effects(Reply(text=""))
        """The effects of the last call or poke."""
        self._last = Operation(name="")
        self._blocks: list[int] | None = None
        """The blocks that the program took in the call that is judged, instead of the first free ones."""
        self._most_sequences = MORE_SEQUENCES + sum(
            operation.name in (*MAKERS, "add_sequence") for operation in trace.operations
        )
        self._decoded: dict[bytes, State] = {}
        self._judged: tuple[bytes, State | None] = (b"", None)
        """The record that was judged last, and the oracle's state after the same operation."""
        self._compared: Callable[[], bytes] = self.record
        """Makes the record with which the last judged operation was compared."""

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotPoke` if a poke does not fit, `CannotGoOn` if the state is too broken."""
        self.effects = effects.apply(self.oracle, operation)
        self._last = operation
        return self.effects.reply

    def record(self) -> bytes:
        """Return all that a white-box test may see after the last operation, as a record of named values."""
        return values.encode(self._record())

    def allowed(self) -> tuple[MemorySpan, ...]:
        """Return the bytes of the pool that the call may touch (Global Constraint 4).

        These are the slot of an append, or the two blocks of a copying append; () for other calls.
        """
        return self.effects.allowed

    def worked(self) -> frozenset[str]:
        """Return no facets: no case asks for work. `grader.judge.resume` builds the state after a failing call."""
        return frozenset()

    def restore(self, record: bytes) -> None:
        """Set the state to a program's, repaired. Raises `CannotGoOn` if it is too broken to continue from."""
        self._take_over(self._repaired(record))

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare by facets. The call may have taken other blocks than the first free ones.

        The choice of blocks is one difference of facet `choice`. The rest is compared with what the oracle does when it
        takes the program's blocks, so that only the rule first-fit judges which block was taken. Values that were
        impossible before the call were reported then, so they are no differences of this call.
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
            left = self._decode(before)["state"]
            expected = {**right, "state": self._with_untouched(right["state"], left, operation, reply)}
            known = standing(operation.target or 1, repaired=start, left=left)
        seed = self.oracle.seed
        others = differences(operation, self.effects, expected=expected, actual=after, seed=seed, known=known)
        self._judged = actual, right["state"]
        self._compared = partial(_compared, expected, operation.target or 1, choice, old_faults=bool(known))
        text = returned_text(after["reply"]["returned"], operation)
        return Judgement(
            expected=reply,
            actual=Reply(text=text, refused=text in _REFUSALS),
            differences=(*([choice.difference] if choice is not None else []), *others),
            unchanged=before is not None and self._decode(before)["state"] == after["state"],
        )

    def compared(self) -> bytes:
        """Return the expected record. It has the program's own blocks, but the right one in the reported entry."""
        return self._compared()

    def describe(self, record: bytes) -> dict[str, object]:
        """Return the record as plain values with the handout's names."""
        return described(self._decode(record), self.oracle.seed, len(self.slots))

    def _recovered(self, pool: memoryview, blocks: int) -> Engine:
        return RecoveredEngine(pool, blocks, self._blocks)

    def _take_over(self, state: State, blocks: list[int] | None = None) -> None:
        self._blocks = blocks
        self.oracle.restore(state)

    def _redo(self, start: State | None, operation: Operation, blocks: list[int] | None = None) -> State:
        """Do an operation from the state `start`, taking `blocks` if given; return the record after it."""
        self._take_over(start or {}, blocks)
        self.apply(operation)
        return self._record()

    def _record(self) -> State:
        return record_of(self._last, self.effects.reply, self.oracle.state())

    def _with_untouched(self, right: State, left: State, operation: Operation, reply: Reply) -> State:
        """Return the state `right`, but with engines that the call must not touch as the program `left` them before.

        The call must not touch any other engine, nor its own engine if the call must fail.
        """
        fails = reply.refused and operation.name != "llm_init"
        return {
            number: left.get(number, slot) if fails or int(number) != operation.target else slot
            for number, slot in right.items()
        }

    def _repaired(self, record: bytes) -> State:
        return repaired(self._decode(record)["state"], self._right_of(record))

    def _right_of(self, record: bytes | None) -> State | None:
        """Return the oracle's state after the operation of this record, if the record was judged last; else None."""
        actual, right = self._judged
        return right if record is not None and actual == record else None

    def _decode(self, record: bytes) -> State:
        """Return the decoded record. Do not change it: the last few records are cached."""
        if record not in self._decoded:
            decoded = _checked(values.decode(record), self.slots, self._most_sequences)
            if len(self._decoded) >= _MOST_DECODED:
                self._decoded.pop(next(iter(self._decoded)))
            self._decoded[record] = decoded
        return self._decoded[record]

    def _own_choice(self, start: State | None, operation: Operation, after: State) -> BlockChoice | None:
        number = str(operation.target or 1)
        before, engine = ((state or {}).get(number, {}).get("engine") for state in (start, after["state"]))
        return own_choice(self.effects, before, engine) if before is not None and engine is not None else None


def _compared(expected: State, number: int, choice: BlockChoice | None, *, old_faults: bool) -> bytes:
    """Return the record that engine `number` was compared with. Raises `CannotGoOn` if there are `old_faults`."""
    if old_faults:
        raise CannotGoOn("a part of the state was impossible before the call; what is left of it is not judged")
    state = expected["state"] if choice is None else choice.corrected(expected["state"], number)
    return values.encode({**expected, "state": state})


def _check_pools(right: State, actual: State) -> None:
    """Raise `CannotGoOn` unless the pools are those that the trace makes: a program does not choose them."""
    sizes = [{number: slot["pool_bytes"] for number, slot in record["state"].items()} for record in (right, actual)]
    if sizes[0] != sizes[1]:
        raise CannotGoOn("a record tells of another pool than llm_init was given")


def _checked(record: Any, slots: range, most: int) -> State:
    """Return the record. Raises `CannotGoOn` if the driver cannot have written it."""
    match record:
        case {"reply": {"returned": returned}, "state": dict(state)} if (
            (isinstance(returned, int | str) or values.is_pointer(returned))
            and state.keys() <= set(map(str, slots))
            and all(map(_is_slot, state.values()))
        ):
            lengths = (len(slot["engine"]["active_seqs"]) for slot in state.values() if slot["engine"] is not None)
            longest = max(lengths, default=0)
            if longest > most:
                sentence = f"active_seqs leads to {longest} sequences, and all calls of the case make no more"
                raise CannotGoOn(f"{sentence} than {most}")
            return record  # type: ignore[no-any-return]
    raise CannotGoOn("its state could not be read")


def _is_slot(slot: Any) -> bool:
    match slot:
        case {"pool_bytes": int(size), "region": region, "engine": engine} if size >= 0:
            return _are_ints(region, region_words(size)) and (engine is None or _is_engine(engine, size // BLOCK_SIZE))
    return False


def _is_engine(engine: Any, blocks: int) -> bool:
    match engine:
        case {
            "total_local_blocks": int(),
            "free_local_blocks": int(),
            "ref_count": counts,
            "active_seqs": list(ids),
            "sequences": dict(sequences),
            **others,
        }:
            return (
                (values.is_pointer(counts) or _are_ints(counts, blocks))
                and _are_ints(ids, len(ids))
                and set(map(str, ids)) == sequences.keys()
                and all(map(_is_sequence, sequences.values()))
                and others.keys() <= {"next", "prev", "pool_base_ptr"}
                and all(map(values.is_pointer, others.values()))
            )
    return False


def _is_sequence(sequence: Any) -> bool:
    match sequence:
        case {"kv_count": int(), "block_table": list(tables)}:
            return len(tables) == L1_PT_SIZE and all(
                values.is_pointer(table) or _are_ints(table, L2_PT_SIZE) for table in tables
            )
        case {"kv_count": int(), "block_table": table}:
            return values.is_pointer(table)
    return False


def _are_ints(items: Any, count: int) -> bool:
    """Return whether a value is a list of `count` ints."""
    try:
        return isinstance(items, list) and len(array("i", items)) == count
    except (OverflowError, TypeError):
        return False
