"""A record in words, as `grade explain` draws it."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array
from typing import Any

import pytest

from grader.labs.paged_kv.judging.describe import PoolWords, pointer_name
from grader.labs.paged_kv.judging.record import Pointer
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
from reference.tests.paged_kv.played import GUARD_WORDS, SEED


def described(played: Played, number: int = 1) -> Any:
    """The description of one engine."""
    whole: Any = played.model.describe(played.record())
    return whole["engines"][number]


def test_a_description_has_the_handouts_names() -> None:
    """Counters, counts, list, sequences and pool, as plain values."""
    played = Played(2)
    played.do("create_sequence 7 5", "append_kv 7 -77")

    assert {
        "reply": {"kind": "INT", "value": 0},
        "engines": {
            1: {
                "total_local_blocks": 2,
                "free_local_blocks": 1,
                "ref_count": [1, 0],
                "list": "ring",
                "mirrored": True,
                "active_seqs": [{"seq_id": 7, "kv_count": 6, "block_table": {0: [0] + [-1] * 15}}],
                "pool_bytes": 128,
                "pool": [["untouched"] * 5 + ["-77"] + ["untouched"] * 10, ["untouched"] * 16],
                "outside": [],
            }
        },
        "slots": 1,
    } == played.model.describe(played.record())


def test_a_slot_without_a_pool_is_not_described() -> None:
    """Only engines that are there, by their numbers, and how many there may be in the trace."""
    played = Played(None, engines=2)
    played.do("@2 llm_init 64")

    state: dict[str, Any] = played.model.describe(played.record())

    assert {"reply", "engines", "slots"} == state.keys()
    assert [2] == list(state["engines"])
    assert 2 == state["slots"]


def test_a_destroyed_engine_leaves_its_pool() -> None:
    """Of management structures nothing is said."""
    played = Played(1)
    played.do("llm_destroy")

    assert {"pool_bytes", "pool", "outside"} == described(played).keys()


def test_a_copied_magic_word_tells_where_it_comes_from() -> None:
    """After copy-on-write the unwritten slots hold the words of the old block."""
    played = Played(2)
    played.do("create_sequence 1 1", "fork_sequence 1 2", "append_kv 2 5")

    assert "the untouched word of block 0, slot 0" == described(played)["pool"][1][0]
    assert "5" == described(played)["pool"][1][1]


@pytest.mark.parametrize(("word", "text"), [(0, "0"), (5, "5"), (2**32 - 5, "-5"), (2**31, str(-(2**31)))])
def test_words_print_as_ints(word: int, text: str) -> None:
    """A KV record is a signed int."""
    assert text == PoolWords(SEED, 1, 64).text(word, 20)


def test_words_outside_of_the_blocks_are_named_when_they_changed() -> None:
    """Guards and the tail behind the last block."""
    played = Played(None)
    played.do("llm_init 100")
    state = played.state
    region = array("I", state.slots[0].region)
    for place in (0, GUARD_WORDS + 16, len(region) - 1):
        region[place] ^= 1
    state.slots[0].region = region.tobytes()
    description: Any = played.model.describe(pack(state))

    assert [
        "the 64 bytes before the pool",
        "the tail of the pool, 0 bytes behind its last block",
        "60 bytes behind the pool",
    ] == description["engines"][1]["outside"]


@pytest.mark.parametrize("pointer", [Pointer.STRAY, Pointer.SMALL, Pointer.FREED])
def test_a_pointer_that_cannot_be_read_is_described(pointer: Pointer) -> None:
    """Where a table should be, or instead of the ring."""
    played = Played(2)
    played.do("create_sequence 1 5")
    state = played.state
    assert state.slots[0].engine is not None
    state.slots[0].engine.sequences[0].l1[3] = pointer
    state.slots[0].engine.list_pointer = pointer
    description: Any = played.model.describe(pack(state))
    engine = description["engines"][1]

    assert pointer_name(pointer) == engine["active_seqs"][0]["block_table"][3]
    assert pointer_name(pointer) == engine["list"]


def test_every_pointer_has_its_own_name() -> None:
    """No two kinds read alike."""
    assert len(Pointer) == len({pointer_name(pointer) for pointer in Pointer})
