"""Part 2.1 and Task 1: what `llm_init` makes of a pool, and which pools it refuses."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.operation import Operation, Trace
from reference.paged_kv import PagedKV, llm_init
from reference.paged_kv.pool import GUARD_WORDS
from reference.tests.paged_kv.naive import first_words
from reference.tests.paged_kv.played import SEED, Played


@pytest.mark.handout("Part 2.1/block-size", "Task 1/total-blocks")
@pytest.mark.parametrize(
    ("pool_bytes", "blocks"), [(64, 1), (65, 1), (127, 1), (128, 2), (1000, 15), (1023, 15), (1024, 16)]
)
def test_the_pool_is_cut_into_blocks_of_64_bytes(pool_bytes: int, blocks: int) -> None:
    """total_local_blocks is pool_size / 64, rounded down."""
    played = Played(None)
    reply = played.do(f"llm_init {pool_bytes}")

    assert ("engine", "Task 1/total-blocks") == (reply.text, reply.clause)
    assert blocks == played.engine().total_local_blocks
    assert blocks == len(played.ref_count())


@pytest.mark.handout("Task 1/free-blocks")
@pytest.mark.parametrize("blocks", [1, 2, 17])
def test_all_blocks_are_free_at_first(blocks: int) -> None:
    """free_local_blocks starts equal to total_local_blocks."""
    assert blocks == Played(blocks).free()


@pytest.mark.handout("Task 1/ref-count-zero", "Part 2.3/ref-count")
def test_ref_count_starts_as_zeros() -> None:
    """Every block has an entry, and nobody uses a block yet."""
    assert [0, 0, 0] == Played(3).ref_count()


@pytest.mark.handout("Task 1/pool-pointer")
def test_the_engine_works_on_the_very_pool_that_it_was_handed() -> None:
    """pool_base_ptr holds pool_addr: what the engine writes is seen by the pool's owner."""
    memory = bytearray(128)
    engine, _ = llm_init(memoryview(memory).cast("i"), 128)
    assert engine is not None
    engine.create_sequence(1, 1)
    engine.append_kv(1, 0x01020304)

    assert b"\x04\x03\x02\x01" == memory[4:8]


@pytest.mark.handout("Task 1/empty-list")
def test_the_list_of_a_new_engine_is_an_empty_ring() -> None:
    """No sequence stands between the dummy head and itself."""
    assert [] == Played().ids()


@pytest.mark.handout("Task 1/null-pool")
@pytest.mark.parametrize("pool_bytes", [0, 63, 64, 1024])
def test_a_null_pool_is_refused(pool_bytes: int) -> None:
    """llm_init returns NULL when pool_addr is NULL, whatever the size says."""
    played = Played(None)
    before = played.state()
    reply = played.do(f"llm_init NULL {pool_bytes}")

    assert ("NULL", True, "Task 1/null-pool") == (reply.text, reply.refused, reply.clause)
    assert before == played.state()


@pytest.mark.handout("Task 1/small-pool")
@pytest.mark.parametrize("pool_bytes", [0, 1, 32, 63])
def test_a_pool_below_one_block_is_refused(pool_bytes: int) -> None:
    """llm_init returns NULL when pool_size is below 64; the pool is there, an engine is not."""
    played = Played(None)
    reply = played.do(f"llm_init {pool_bytes}")

    assert ("NULL", True, "Task 1/small-pool") == (reply.text, reply.refused, reply.clause)
    slot = played.state()["1"]
    assert (pool_bytes, None) == (slot["pool_bytes"], slot["engine"])


@pytest.mark.handout("Constraint 1/null-engine")
def test_a_refused_init_leaves_a_null_engine() -> None:
    """Calls that get the NULL of a refused llm_init are calls on a NULL engine."""
    played = Played(None)
    played.do("llm_init 63")

    assert "Constraint 1/null-engine" == played.do("create_sequence 1 1").clause


@pytest.mark.handout("Constraint 4/no-write")
@pytest.mark.parametrize("pool_bytes", [64, 100, 129])
def test_init_writes_neither_pool_nor_guards(pool_bytes: int) -> None:
    """After llm_init every word of the region is still its own magic word."""
    played = Played(None)
    played.do(f"llm_init {pool_bytes}")

    assert first_words(SEED, 1, pool_bytes) == [word & 0xFFFFFFFF for word in played.words()]
    assert GUARD_WORDS + (pool_bytes + 3) // 4 + GUARD_WORDS == len(played.words())


@pytest.mark.handout("Part 2.3/global-state")
def test_two_engines_have_each_their_own_blocks_and_counts() -> None:
    """What one engine maps and counts, the other one does not see."""
    played = Played(2)
    played.do("@2 llm_init 192", "create_sequence 1 32", "@2 create_sequence 1 1")

    assert ([1, 1], 0) == (played.ref_count(1), played.free(1))
    assert ([1, 0, 0], 2) == (played.ref_count(2), played.free(2))


def test_an_oracle_without_a_seed_uses_seed_0() -> None:
    """A trace need not set anything."""
    oracle = PagedKV(Trace(operations=(Operation(name="llm_init", arguments=(64,)),)))

    assert 0 == oracle.seed
