"""PagedKV.judge: each facet can be provoked alone, and nothing comes of a record that is right."""

from __future__ import annotations

import sys
from array import array

import pytest

from grader.labs.paged_kv.judging.record import RecordState
from grader.tests.labs.paged_kv.judging import wrong
from grader.tests.labs.paged_kv.judging.edits import (
    NOTED,
    Edit,
    facets,
    judged,
    set_word,
    tags,
)
from reference.oracle import CannotGoOn
from reference.paged_kv.constants import KV_PER_BLOCK, KV_SIZE
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


def test_a_region_of_another_length_is_no_record_of_the_trace() -> None:
    """Only who forges a record can tell of another pool than was made; its size would be the forger's choice."""

    def longer(state: RecordState) -> None:
        set_word(state, 40, 9)
        state.slots[0].pool_bytes += 4
        state.slots[0].region += bytes(4)

    with pytest.raises(CannotGoOn, match="another pool"):
        judged("append_kv 2 7", longer)


def test_a_record_stored_elsewhere_after_a_copy_is_written_at_the_wrong_place() -> None:
    """Where in the block the record goes is the business of every append, also of one that copies."""

    def one_late(state: RecordState) -> None:
        set_word(state, KV_PER_BLOCK * 3 + 5, 7)
        _copy_word(state, 4)

    def two_bytes_late(state: RecordState) -> None:
        region = bytearray(state.slots[0].region)
        first = KV_SIZE * (GUARD_WORDS + KV_PER_BLOCK * 3 + 4)
        _copy_word(state, 4)
        region[first : first + 4] = state.slots[0].region[first : first + 4]
        region[first + 2 : first + 6] = (7).to_bytes(4, sys.byteorder)
        state.slots[0].region = bytes(region)

    def too_wide(state: RecordState) -> None:
        set_word(state, KV_PER_BLOCK * 3 + 5, 0)

    for edit in (one_late, two_bytes_late, too_wide):
        assert {"written"} == set(facets(judged("append_kv 3 7", edit)))


def _copy_word(state: RecordState, slot: int) -> None:
    """Put what block 1 holds in `slot` into block 3, which is its copy."""
    words = array("i", state.slots[0].region)
    set_word(state, KV_PER_BLOCK * 3 + slot, words[GUARD_WORDS + KV_PER_BLOCK + slot])
