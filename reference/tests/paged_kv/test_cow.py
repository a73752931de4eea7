"""Part 2.3 and Task 4: copy-on-write, step by step."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.tests.paged_kv.played import Played


def shared_block(blocks: int = 4) -> Played:
    """Sequences 1 and 2 share block 0 with 7 records, the last of them 77."""
    played = Played(blocks)
    played.do("create_sequence 1 6", "append_kv 1 77", "fork_sequence 1 2")
    return played


@pytest.mark.handout("Part 2.3/cow-protocol", "Task 4/needs-cow")
def test_appending_to_a_shared_block_copies_it_first() -> None:
    """A mapped slot whose block has ref_count above 1 needs copy-on-write."""
    played = shared_block()
    reply = played.do("append_kv 2 88")

    assert ("0", {0: 1}) == (reply.text, played.mapped(2))


@pytest.mark.handout("Part 2.3/no-shared-write", "Part 2.3/cow-protocol")
@pytest.mark.parametrize("writer", [1, 2])
def test_a_shared_block_is_never_written(writer: int) -> None:
    """The old block keeps all its words, whoever appends."""
    played = shared_block()
    before = played.block(0)
    played.do(f"append_kv {writer} 88")

    assert before == played.block(0)


@pytest.mark.handout("Task 4/cow-copy")
def test_all_64_bytes_are_copied() -> None:
    """Records travel, and so does the magic of the unwritten slots before and behind them."""
    played = shared_block()
    old = played.block(0)
    played.do("append_kv 2 88")

    assert [*old[:7], 88, *old[8:]] == played.block(1)


@pytest.mark.handout("Task 4/cow-copy", "Task 4/store")
def test_no_other_block_is_written_by_a_copy() -> None:
    """Copy and record stay inside the new block."""
    played = shared_block()
    before = [played.block(block) for block in (0, 2, 3)]
    played.do("append_kv 2 88")

    assert before == [played.block(block) for block in (0, 2, 3)]


@pytest.mark.handout("Task 4/cow-counts", "Part 2.3/ref-count", "Constraint 5/decrement")
def test_counts_follow_the_copy() -> None:
    """The old block has one user less, the new one has one, and one block less is free."""
    played = shared_block()
    played.do("fork_sequence 1 3", "append_kv 2 88")

    assert ([2, 1, 0, 0], 2) == (played.ref_count(), played.free())


@pytest.mark.handout("Task 4/cow-remap")
def test_only_the_appending_sequence_is_remapped() -> None:
    """The others keep the old block."""
    played = shared_block()
    played.do("fork_sequence 1 3", "append_kv 2 88")

    assert ({0: 0}, {0: 1}, {0: 0}) == (played.mapped(1), played.mapped(2), played.mapped(3))


@pytest.mark.handout("Task 4/cow-remap", "Part 2.3/shared-prefix")
def test_earlier_blocks_stay_shared() -> None:
    """Only the block that is written is copied."""
    played = Played(4)
    played.do("create_sequence 1 20", "fork_sequence 1 2", "append_kv 2 88")

    assert ({0: 0, 1: 1}, {0: 0, 1: 2}) == (played.mapped(1), played.mapped(2))
    assert [2, 1, 1, 0] == played.ref_count()


@pytest.mark.handout("Task 4/exclusive")
def test_the_last_user_of_a_block_writes_in_place() -> None:
    """After the others copied it away, the block is exclusive again."""
    played = shared_block()
    played.do("append_kv 2 88", "append_kv 1 99")

    assert ({0: 0}, {0: 1}) == (played.mapped(1), played.mapped(2))
    assert (99, 88) == (played.block(0)[7], played.block(1)[7])


@pytest.mark.handout("Part 2.3/cow-protocol", "Constraint 3/first-fit")
def test_the_copy_goes_to_the_first_free_block() -> None:
    """It may lie before the old one."""
    played = Played(4)
    played.do("create_sequence 9 16", "create_sequence 1 5", "fork_sequence 1 2", "free_sequence 9")
    played.do("append_kv 1 88")

    assert ({0: 0}, {0: 1}) == (played.mapped(1), played.mapped(2))


@pytest.mark.handout("Task 4/needs-new-page", "Part 2.3/no-shared-write")
def test_a_full_shared_block_needs_a_page_and_no_copy() -> None:
    """The next record belongs to a block that nobody has yet."""
    played = Played(4)
    played.do("create_sequence 1 16", "fork_sequence 1 2")
    before = played.block(0)
    played.do("append_kv 2 88")

    assert before == played.block(0)
    assert [2, 1, 0, 0] == played.ref_count()


@pytest.mark.handout("Task 4/oom", "Task 4/needs-cow")
def test_a_copy_takes_the_last_free_block_but_not_one_more() -> None:
    """The second of two copies is refused when one block is free."""
    played = shared_block(2)
    played.do("fork_sequence 1 3")

    assert ["0", "-1"] == [played.do("append_kv 2 1").text, played.do("append_kv 3 2").text]
    assert [2, 1] == played.ref_count()
