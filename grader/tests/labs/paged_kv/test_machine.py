"""A state machine over two engines: whatever is called and poked, the handout's invariants hold."""
# ruff: noqa: SIM300

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis.stateful import invariant

from grader.labs.paged_kv.states import State
from grader.runtime.native import values
from grader.tests.labs.paged_kv.machine import Machine
from grader.tests.labs.paged_kv.played import Played
from reference.paged_kv.pool import GUARD_WORDS
from reference.tests.paged_kv.clauses import clauses
from reference.tests.paged_kv.naive import first_words
from reference.tests.paged_kv.played import SEED

CLAUSES = clauses() | {""}


def mapped(sequence: State) -> dict[int, int]:
    """Logical -> physical block."""
    entries = [
        (16 * l1 + l2, block)
        for l1, table in enumerate(sequence["block_table"])
        if table is not None
        for l2, block in enumerate(table)
    ]
    return {logical: block for logical, block in entries if block != -1}


class EngineMachine(Machine):
    """The invariants look at the record before an operation and at the record after it."""

    # invariants of one record

    @invariant()
    def blocks_are_conserved(self) -> None:
        """Free blocks and mapped blocks are all blocks, as many as fit into the pool."""
        for _, slot, engine in self.living():
            used = {block for sequence in engine["sequences"].values() for block in mapped(sequence).values()}
            assert slot["pool_bytes"] // 64 == engine["total_local_blocks"]
            assert engine["total_local_blocks"] == engine["free_local_blocks"] + len(used)

    @invariant()
    def ref_count_counts_table_entries(self) -> None:
        """How many sequences use a block is how many entries name it."""
        for _, _, engine in self.living():
            uses = Counter(block for sequence in engine["sequences"].values() for block in mapped(sequence).values())
            assert [uses[block] for block in range(engine["total_local_blocks"])] == engine["ref_count"]

    @invariant()
    def free_local_blocks_counts_zeros(self) -> None:
        """A block is free when its ref_count is 0."""
        for _, _, engine in self.living():
            assert engine["ref_count"].count(0) == engine["free_local_blocks"]

    @invariant()
    def the_list_is_in_order_of_creation(self) -> None:
        """Creating and forking append at the tail, freeing keeps the order of the rest."""
        for number, _, engine in self.living():
            assert self.order[number] == engine["active_seqs"]

    @invariant()
    def ids_are_unique(self) -> None:
        """Within an engine."""
        for _, _, engine in self.living():
            assert len(engine["active_seqs"]) == len(engine["sequences"])

    @invariant()
    def no_block_is_mapped_twice_within_a_sequence(self) -> None:
        """Sharing is between sequences."""
        for _, _, engine in self.living():
            for sequence in engine["sequences"].values():
                assert len(mapped(sequence)) == len(set(mapped(sequence).values()))

    @invariant()
    def entries_are_blocks_or_minus_one(self) -> None:
        """An L2 table holds nothing else."""
        for _, _, engine in self.living():
            for sequence in engine["sequences"].values():
                assert set(mapped(sequence).values()) <= set(range(engine["total_local_blocks"]))

    @invariant()
    def records_lie_in_mapped_blocks(self) -> None:
        """A sequence that was not poked has exactly the blocks that its records need."""
        for number, _, engine in self.living():
            for seq_id, sequence in engine["sequences"].items():
                if (number, int(seq_id)) not in self.poked:
                    assert set(range((sequence["kv_count"] + 15) // 16)) == set(mapped(sequence))

    @invariant()
    def l2_tables_exist_only_where_blocks_are_mapped(self) -> None:
        """In a sequence that was not poked every L2 table has a block, and every block has one."""
        for number, _, engine in self.living():
            for seq_id, sequence in engine["sequences"].items():
                if (number, int(seq_id)) not in self.poked:
                    tables = [l1 for l1, table in enumerate(sequence["block_table"]) if table is not None]
                    assert sorted({logical // 16 for logical in mapped(sequence)}) == tables

    @invariant()
    def unwritten_words_keep_their_magic(self) -> None:
        """Only words that an append changed differ from the first content; guards and tail never do."""
        for number, slot, _ in self.living():
            first = first_words(SEED, number, slot["pool_bytes"])
            places = enumerate(zip(first, slot["region"], strict=True))
            changed = {place for place, (old, new) in places if old != new % 2**32}
            blocks = range(GUARD_WORDS, GUARD_WORDS + slot["pool_bytes"] // 64 * 16)
            assert changed <= self.written[number]
            assert all(place in blocks for place in changed)

    # invariants of one operation

    @invariant()
    def a_refused_call_leaves_the_record_as_it_was(self) -> None:
        """But for the pool that llm_init found too small."""
        if self.reply.refused and self.reply.clause != "Task 1/small-pool":
            assert self.was == self.now

    @invariant()
    def the_other_engine_stays_as_it_was(self) -> None:
        """Byte for byte, whatever was done to the one."""
        for number in (1, 2):
            if self.operation is not None and self.operation.target != number:
                assert self.was.get(str(number)) == self.now.get(str(number))

    @invariant()
    def a_shared_block_is_never_written(self) -> None:
        """A block with ref_count above 1 before the call has the same bytes after it."""
        for number, was in self.was.items():
            now = self.now[number]
            if was["engine"] is not None and was["pool_bytes"] == now["pool_bytes"]:
                for block, count in enumerate(was["engine"]["ref_count"]):
                    part = slice(16 + 16 * block, 32 + 16 * block)
                    assert count < 2 or was["region"][part] == now["region"][part]

    @invariant()
    def only_append_writes(self) -> None:
        """Any other call, but a new llm_init, leaves the region alone."""
        if self.operation is not None and self.operation.name not in ("append_kv", "llm_init"):
            assert [slot["region"] for slot in self.was.values()] == [slot["region"] for slot in self.now.values()]

    # invariants of the model

    @invariant()
    def a_record_is_what_its_values_are_encoded_to(self) -> None:
        """Decoding loses nothing."""
        assert self.now == values.decode(self.after)["state"]
        assert self.after == values.encode(values.decode(self.after))

    @invariant()
    def restoring_is_the_identity(self) -> None:
        """A model that takes the record over has the same state."""
        other = Played(None, engines=2)
        other.model.restore(self.after)
        assert self.now == other.state

    @invariant()
    def the_engine_finds_nothing_wrong_with_itself(self) -> None:
        """Judging the last operation from the record before it gives no difference and the same reply."""
        if self.operation is not None and self.before != self.after:
            judgement = Played(None, engines=2).model.judge(self.before, self.operation, self.after)
            assert () == judgement.differences
            assert self.reply.text == judgement.actual.text

    @invariant()
    def the_clause_of_a_reply_exists(self) -> None:
        """It is a sentence of the handout."""
        assert self.reply.clause in CLAUSES


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, derandomize=True, database=None
)
