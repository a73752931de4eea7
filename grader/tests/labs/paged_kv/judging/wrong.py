"""One wrong place each: edits of the record of a program that did everything else right."""

from __future__ import annotations

from array import array

from grader.labs.paged_kv.judging.record import Pointer, RecordState, ReplyKind
from grader.tests.labs.paged_kv.judging.edits import engine_of, l2_table, sequence_of
from grader.tests.labs.paged_kv.judging.played import Played
from reference.paged_kv.constants import L2_PT_SIZE


def reply(state: RecordState) -> None:
    """It returns 1."""
    state.reply_kind, state.reply_value = ReplyKind.INT, 1


def free(state: RecordState) -> None:
    """One free block too many."""
    engine_of(state).free_local_blocks += 1


def total(state: RecordState) -> None:
    """One block too few."""
    engine_of(state).total_local_blocks -= 1


def pool_pointer(state: RecordState) -> None:
    """pool_base_ptr is another address."""
    engine_of(state).pool_ok = 0


def lives_on(state: RecordState) -> None:
    """The engine still exists."""
    state.slots[0].engine = Played(6).engine()


def gone(state: RecordState) -> None:
    """The engine does not exist any more."""
    state.slots[0].engine = None


def ref_count(state: RecordState) -> None:
    """One reference too few."""
    engine_of(state).ref_count[2] -= 1


def no_ref_count(state: RecordState) -> None:
    """The array is missing."""
    engine_of(state).ref_pointer, engine_of(state).ref_count = Pointer.NULL, array("i")


def more_l2(state: RecordState) -> None:
    """An L2 table too many."""
    sequence_of(state, 1).l1[3], sequence_of(state, 1).tables[3] = Pointer.OK, array("i", [-1] * L2_PT_SIZE)


def less_l2(state: RecordState) -> None:
    """An L2 table is missing."""
    sequence_of(state, 3).l1[0], sequence_of(state, 3).tables[0] = Pointer.NULL, None


def shared_l2(state: RecordState) -> None:
    """An L2 table that hangs elsewhere too."""
    sequence_of(state, 3).l1[0] = Pointer.SHARED


def fill(state: RecordState) -> None:
    """An entry that should be -1 is not."""
    l2_table(state, 1)[5] = 0


def mapping(state: RecordState) -> None:
    """An entry that should be a block is not."""
    l2_table(state, 1)[1] = -1


def other_block(state: RecordState) -> None:
    """An entry that should be a block is another one."""
    l2_table(state, 1)[1] = 3


def freed_l1(state: RecordState) -> None:
    """The L1 table was freed."""
    sequence_of(state, 1).table = Pointer.FREED
    sequence_of(state, 1).l1, sequence_of(state, 1).tables = [], []


def shared_l1(state: RecordState) -> None:
    """An L1 table that hangs elsewhere too."""
    sequence_of(state, 1).table = Pointer.SHARED


def kv_count(state: RecordState) -> None:
    """One record too many."""
    sequence_of(state, 3).kv_count += 1


def order(state: RecordState) -> None:
    """The list is in reverse."""
    engine_of(state).sequences.reverse()


def missing(state: RecordState) -> None:
    """The last sequence is not in the list."""
    engine_of(state).sequences.pop()


def extra(state: RecordState) -> None:
    """A sequence is in the list twice."""
    engine_of(state).sequences.append(sequence_of(state, 1))


def one_way(state: RecordState) -> None:
    """The walk along prev does not mirror the one along next."""
    engine_of(state).mirrored = 0


def endless(state: RecordState) -> None:
    """The walk along next never ends."""
    engine_of(state).list_pointer = Pointer.SHARED


def astray(state: RecordState) -> None:
    """The walk along next leaves the program's memory."""
    engine_of(state).list_pointer = Pointer.STRAY
