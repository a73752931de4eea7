"""One wrong place each: edits of the record of a program that did everything else right."""

from __future__ import annotations

from grader.labs.paged_kv.states import State
from grader.tests.labs.paged_kv.edits import FREED, SHARED, STRAY, engine_of, sequence_of
from grader.tests.labs.paged_kv.played import Played


def reply(record: State) -> None:
    """It returns 1."""
    record["reply"]["returned"] = 1


def free(record: State) -> None:
    """One free block too many."""
    engine_of(record)["free_local_blocks"] += 1


def total(record: State) -> None:
    """One block too few."""
    engine_of(record)["total_local_blocks"] -= 1


def pool_pointer(record: State) -> None:
    """pool_base_ptr is another address."""
    engine_of(record)["pool_base_ptr"] = STRAY


def lives_on(record: State) -> None:
    """The engine still exists."""
    record["state"]["1"]["engine"] = Played(6).state["1"]["engine"]


def gone(record: State) -> None:
    """The engine does not exist any more."""
    record["state"]["1"]["engine"] = None


def ref_count(record: State) -> None:
    """One reference too few."""
    engine_of(record)["ref_count"][2] -= 1


def no_ref_count(record: State) -> None:
    """The array is missing."""
    engine_of(record)["ref_count"] = None


def more_l2(record: State) -> None:
    """An L2 table too many."""
    sequence_of(record, 1)["block_table"][3] = [-1] * 16


def less_l2(record: State) -> None:
    """An L2 table is missing."""
    sequence_of(record, 3)["block_table"][0] = None


def shared_l2(record: State) -> None:
    """An L2 table that hangs elsewhere too."""
    sequence_of(record, 3)["block_table"][0] = SHARED


def fill(record: State) -> None:
    """An entry that should be -1 is not."""
    sequence_of(record, 1)["block_table"][0][5] = 0


def mapping(record: State) -> None:
    """An entry that should be a block is not."""
    sequence_of(record, 1)["block_table"][0][1] = -1


def other_block(record: State) -> None:
    """An entry that should be a block is another one."""
    sequence_of(record, 1)["block_table"][0][1] = 3


def freed_l1(record: State) -> None:
    """The L1 table was freed."""
    sequence_of(record, 1)["block_table"] = FREED


def shared_l1(record: State) -> None:
    """An L1 table that hangs elsewhere too."""
    sequence_of(record, 1)["block_table"] = SHARED


def kv_count(record: State) -> None:
    """One record too many."""
    sequence_of(record, 3)["kv_count"] += 1


def order(record: State) -> None:
    """The list is in reverse."""
    engine_of(record)["active_seqs"].reverse()


def missing(record: State) -> None:
    """The last sequence is not in the list."""
    del engine_of(record)["sequences"][str(engine_of(record)["active_seqs"].pop())]


def extra(record: State) -> None:
    """A sequence is in the list twice."""
    engine_of(record)["active_seqs"].append(1)


def one_way(record: State) -> None:
    """The walk along prev does not mirror the one along next."""
    engine_of(record)["prev"] = STRAY


def endless(record: State) -> None:
    """The walk along next never ends."""
    engine_of(record)["next"] = SHARED


def astray(record: State) -> None:
    """The walk along next leaves the program's memory."""
    engine_of(record)["next"] = STRAY
