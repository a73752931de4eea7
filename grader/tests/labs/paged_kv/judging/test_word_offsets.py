"""Offsets of named words in a record: a word that is changed there is the one that the difference names."""

from __future__ import annotations

import struct

import pytest

from grader.labs.paged_kv.judging.record import word_offsets
from grader.tests.labs.paged_kv.judging.played import Played
from reference.tests.paged_kv.played import TOUR, operation

WORD = struct.Struct("<i")


@pytest.fixture
def played() -> Played:
    """Two engines with sequences, holes and written words."""
    played = Played(6, engines=2)
    played.do(*TOUR[:8])
    return played


def named_words(played: Played) -> list[str]:
    """All names but those of pointers and lists: what a program cannot leave so is no ordinary difference."""
    pointers = ("pool_base_ptr", "walk", "sequences along", "block_table", "total_local_blocks", "seq_id")
    found = [
        name
        for name in word_offsets(played.record(), 2)
        if not any(word in name for word in pointers) and not name.endswith("ref_count")
    ]
    assert len(found) > 100
    return found


def test_a_changed_word_is_the_one_that_the_difference_names(played: Played) -> None:
    """Each value of both engines and pools, one at a time."""
    before = played.record()
    played.do("@NULL llm_destroy")
    after = played.record()
    wrong = {}
    for name in named_words(played):
        at = word_offsets(after, 2)[name] * WORD.size
        (value,) = WORD.unpack_from(after, at)
        changed = after[:at] + WORD.pack(value + 1) + after[at + WORD.size :]
        differences = Played(None, engines=2).model.judge(before, operation("@NULL llm_destroy"), changed).differences
        if not any(name in difference.field for difference in differences):
            wrong[name] = [difference.field for difference in differences]

    assert wrong == {}


def test_entries_of_tables_have_offsets(played: Played) -> None:
    """The word at the place of an entry is the block that is mapped there."""
    record = played.record()
    found = word_offsets(record, 2)
    for sequence in played.engine().sequences:
        for l1, table in enumerate(sequence.tables):
            for l2, block in enumerate(table if table is not None else ()):
                name = f"sequence {sequence.seq_id}: block_table[{l1}][{l2}]"
                assert WORD.unpack_from(record, found[name] * WORD.size) == (block,)


def test_what_is_no_record_is_refused(played: Played) -> None:
    """As `decode` refuses it."""
    with pytest.raises(ValueError, match=r"."):
        word_offsets(played.record()[:-4], 2)
