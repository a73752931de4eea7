"""PagedKV.judge: each facet can be provoked alone, and nothing comes of a record that is right."""

from __future__ import annotations

import struct

import pytest

from grader.labs.paged_kv.states import State
from grader.tests.labs.paged_kv import wrong
from grader.tests.labs.paged_kv.edits import (
    NOTED,
    SETTING,
    Edit,
    facets,
    judged,
    region_of,
    set_word,
    tags,
)
from reference.oracle import CannotGoOn
from reference.paged_kv.pool import GUARD_WORDS

EDITS: dict[str, tuple[str, Edit, str, set[str]]] = {
    "reply": ("append_kv 2 7", wrong.reply, "reply", set()),
    "free": ("fork_sequence 1 4", wrong.free, "counters", {"too-high"}),
    "total": ("fork_sequence 1 4", wrong.total, "counters", {"too-low"}),
    "pool_base_ptr": ("fork_sequence 1 4", wrong.pool_pointer, "counters", set()),
    "lives on": ("llm_destroy", wrong.lives_on, "counters", set()),
    "gone": ("fork_sequence 1 4", wrong.gone, "counters", set()),
    "ref_count": ("free_sequence 1", wrong.ref_count, "ref_count", {"too-low"}),
    "no ref_count": ("free_sequence 1", wrong.no_ref_count, "ref_count", {"null"}),
    "more L2": ("fork_sequence 1 4", wrong.more_l2, "tables", {"shape", "ok"}),
    "less L2": ("fork_sequence 1 4", wrong.less_l2, "tables", {"shape", "null"}),
    "shared L2": ("fork_sequence 1 4", wrong.shared_l2, "tables", {"shape", "shared"}),
    "fill": ("fork_sequence 1 4", wrong.fill, "tables", {"fill"}),
    "mapping": ("fork_sequence 1 4", wrong.mapping, "tables", {"mapping"}),
    "other block": ("fork_sequence 1 4", wrong.other_block, "tables", {"mapping", "remapped"}),
    "freed L1": ("fork_sequence 1 4", wrong.freed_l1, "tables", {"shape", "freed"}),
    "shared L1": ("fork_sequence 1 4", wrong.shared_l1, "tables", {"shape", "shared"}),
    "kv_count": ("append_kv 3 7", wrong.kv_count, "fields", {"too-high"}),
    "order": ("fork_sequence 1 4", wrong.order, "list", {"order"}),
    "missing": ("fork_sequence 1 4", wrong.missing, "list", {"missing"}),
    "extra": ("free_sequence 2", wrong.extra, "list", {"extra"}),
    "one way": ("free_sequence 2", wrong.one_way, "list", {"prev"}),
    "endless": ("free_sequence 2", wrong.endless, "list", {"broken", "shared"}),
    "astray": ("free_sequence 2", wrong.astray, "list", {"broken", "stray"}),
}
"""Name -> call, edit, the only facet that may come out, its tags."""


@pytest.mark.parametrize("name", EDITS)
def test_each_facet_comes_alone(name: str) -> None:
    """One wrong place gives differences of its own facet, and of no other."""
    line, edit, facet, tagged = EDITS[name]
    judgement = judged(line, edit)

    assert [facet] == facets(judgement)
    assert tagged == tags(judgement) - (NOTED - tagged)


@pytest.mark.parametrize(("engine", "block"), [(1, 3), (2, 2)])
def test_a_block_in_another_entry_is_misplaced_in_every_engine(engine: int, block: int) -> None:
    """The note names both entries."""

    def moved(record: State) -> None:
        entries = record["state"][str(engine)]["engine"]["sequences"]["9"]["block_table"][0]
        entries[0], entries[1] = -1, entries[0]

    judgement = judged(f"@{engine} create_sequence 9 1", moved)
    notes = [difference.note for difference in judgement.differences]

    assert "misplaced" in tags(judgement)
    assert f"In sequence 9 block {block} was put into block_table[0][1]; it belongs in block_table[0][0]." in notes


def test_what_cannot_be_read_and_a_wrong_table_are_told_together() -> None:
    """Which blocks are free is then unknown, and nothing is said of it."""

    def both(record: State) -> None:
        wrong.no_ref_count(record)
        wrong.other_block(record)

    assert facets(judged("fork_sequence 1 4", both)) == ["ref_count", "tables"]


def test_a_copying_append_that_changes_another_pool_is_no_copy_there() -> None:
    """The other pool is too small to have the word that the append stores."""

    def across(record: State) -> None:
        record["state"]["2"]["region"][GUARD_WORDS + 4] = 7

    lines = [*SETTING[:2], "create_sequence 4 5", SETTING[2]]
    assert facets(judged("append_kv 3 7", across, setting=lines)) == ["isolation"]


def test_a_region_of_another_length_is_no_record_of_the_trace() -> None:
    """Only who forges a record can tell of another pool than was made; its size would be the forger's choice."""

    def longer(record: State) -> None:
        set_word(record, 40, 9)
        record["state"]["1"]["pool_bytes"] += 4
        region_of(record).append(0)

    with pytest.raises(CannotGoOn, match="another pool"):
        judged("append_kv 2 7", longer)


def test_a_record_stored_elsewhere_after_a_copy_is_written_at_the_wrong_place() -> None:
    """Where in the block the record goes is the business of every append, also of one that copies."""

    def one_late(record: State) -> None:
        set_word(record, 16 * 3 + 5, 7)
        _copy_word(record, 4)

    def two_bytes_late(record: State) -> None:
        _copy_word(record, 4)
        first = GUARD_WORDS + 16 * 3 + 4
        words = bytearray(struct.pack("<2i", *region_of(record)[first : first + 2]))
        words[2:6] = struct.pack("<i", 7)
        region_of(record)[first : first + 2] = struct.unpack("<2i", words)

    def too_wide(record: State) -> None:
        set_word(record, 16 * 3 + 5, 0)

    for edit in (one_late, two_bytes_late, too_wide):
        assert {"written"} == set(facets(judged("append_kv 3 7", edit)))


def _copy_word(record: State, slot: int) -> None:
    """Put what block 1 holds in `slot` into block 3, which is its copy."""
    set_word(record, 16 * 3 + slot, region_of(record)[GUARD_WORDS + 16 + slot])
