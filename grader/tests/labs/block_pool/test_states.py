"""Whatever happened before: a state can be taken over, and what can never be is not."""

from __future__ import annotations

from random import Random

import pytest

from grader.labs.block_pool.oracle import BlockPoolOracle
from grader.labs.block_pool.traces import generate
from reference.operation import Operation
from reference.tests.states import assert_goes_on_from_every_state, assert_refusals_change_nothing

_SEEDS = range(120)
_LENGTH = 60


@pytest.mark.parametrize("part", range(6))
def test_an_engine_goes_on_from_a_state_as_if_it_had_been_there(part: int) -> None:
    """Whatever the state."""
    for seed in _SEEDS[part::6]:
        assert_goes_on_from_every_state(BlockPoolOracle, generate(Random(seed), _LENGTH))


def test_a_refused_call_changes_nothing() -> None:
    """Whichever call refuses."""
    refusals = [assert_refusals_change_nothing(BlockPoolOracle, generate(Random(seed), _LENGTH)) for seed in _SEEDS]

    assert sum(refusals) > 100


def test_queue_counts_index_and_tables_agree() -> None:
    """Free is queued, cached is indexed, counted is used; the invariants of the handout."""
    for seed in _SEEDS:
        engine = BlockPoolOracle()
        for operation in generate(Random(seed), _LENGTH):
            engine.apply(operation)
            where = (seed, operation)
            assert engine.back == engine.forward[::-1], where
            assert engine.num_free == len(engine.forward) == len(set(engine.forward)), where
            if engine.ref:
                free = {block for block, count in enumerate(engine.ref) if count == 0}
                assert free == set(engine.forward), where
                indexed = {block: hash_ for hash_, blocks in engine.index.items() for block in blocks}
                hashed = {block: hash_ for block, hash_ in enumerate(engine.hash) if hash_ is not None}
                assert indexed == hashed, where
            if engine.block_size:
                used = [block for table in engine.tables.values() for block in table]
                assert all(count == used.count(block) for block, count in enumerate(engine.ref) if count is not None)


def test_every_kind_of_call_is_accepted_and_refused() -> None:
    """The random traces reach what written cases reach."""
    seen = set()
    for seed in _SEEDS:
        engine = BlockPoolOracle()
        for operation in generate(Random(seed), _LENGTH):
            seen.add((operation.name, engine.apply(operation).refused))

    refusing = {
        "popleft",
        "popleft_n",
        "remove",
        "append",
        "append_n",
        "get_new_blocks",
        "free_blocks",
        "admit",
        "step",
    }
    refusing |= {"evict_blocks", "get_cached_block", "fork_block", "write"}
    assert {name for name, refused in seen if refused} == refusing
    assert {name for name, refused in seen if not refused} >= refusing


def test_a_request_without_a_manager_has_no_meaning() -> None:
    """A program may refuse to make a manager; then a request has no block size, and no hashes without end."""
    with pytest.raises(ValueError, match="must not be zero"):
        BlockPoolOracle().apply(Operation(name="new", arguments=("a", (1, 2))))
