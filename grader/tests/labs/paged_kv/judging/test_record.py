"""The record: its documented layout, decoding, and what damaged bytes lead to."""

from __future__ import annotations

from array import array

import pytest

from grader.labs.paged_kv.judging.record import Pointer, ReplyKind
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
from reference.tests.paged_kv.played import TOUR

OK, NULL = Pointer.OK, Pointer.NULL


@pytest.mark.parametrize("count", range(len(TOUR) + 1))
def test_decoding_and_packing_give_the_record_back(count: int) -> None:
    """The layout that record.py documents is the one it writes and reads."""
    played = Played(6, engines=2)
    if count:
        played.do(*TOUR[:count])

    assert played.record() == pack(played.state)


def test_a_record_is_laid_out_as_documented() -> None:
    """Word by word: reply, slot, engine, counts, list, sequence, tables, region."""
    played = Played(2)
    played.do("create_sequence 7 17")
    table = [0, 1] + [-1] * 14

    assert [
        *(ReplyKind.SEQUENCE, 7),
        *(128, 1),
        *(1, 2, 0, OK),
        *(1, 1),
        *(OK, 1, 1),
        *(7, 17, OK, OK, *[NULL] * 15, *table),
        *played.words(),
    ] == array("i", played.record()).tolist()
