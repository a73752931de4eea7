"""PagedKV.delta: what the model foretells is what the operation did, and as short as a driver tells it."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.delta import applied
from reference.tests.paged_kv.played import TOUR, Played

_CALLS = [
    "llm_init 640",
    "create_sequence 1 20",
    "fork_sequence 1 2",
    "append_kv 2 7",
    "append_kv 2 8",
    "append_kv 1 9",
    "create_sequence 1 5",
    "create_sequence 3 16",
    "append_kv 3 1",
    "set_kv_count 3 256",
    "append_kv 3 2",
    "append_kv 2 3",
    "move_l2 3 0 5",
    "free_sequence 1",
    "append_kv 2 4",
    "llm_destroy",
]


def told(played: Played, *lines: str) -> list[bytes]:
    """The delta of each line; each makes the record there is of the one before."""
    record, deltas = b"", []
    for line in lines:
        played.do(line)
        delta = played.model.delta()
        assert (line, played.record()) == (line, applied(delta, record))
        record = played.record()
        deltas.append(delta)
    return deltas


def test_every_delta_makes_the_record() -> None:
    """Of each call and poke, with tables that grow before other sequences."""
    assert len(_CALLS) == len(told(Played(None), *_CALLS))


@pytest.mark.parametrize("first", [1, 2])
def test_both_engines_of_a_trace_are_told(first: int) -> None:
    """Whichever came first, the memory of the second one stands last in a record, and that of the first before it."""
    second = 3 - first
    lines = [f"@{engine} {call}" for call in _CALLS for engine in (first, second)]

    told(Played(None, engines=2), *lines)
    told(Played(None, engines=2), "llm_init 256", *TOUR)


def test_nothing_before_the_first_pool() -> None:
    """Calls of a NULL engine may come first."""
    told(Played(None), "@NULL append_kv 1 2", "llm_init NULL 64", "llm_init 63", "llm_init 64", "create_sequence 1 1")


def test_deltas_are_short() -> None:
    """A refused call costs three words, an append in place seven, and no other call tells the memory again."""
    deltas = dict(zip(_CALLS, told(Played(None), *_CALLS), strict=True))
    pool = 10 * 64

    assert 4 * 3 == len(deltas["create_sequence 1 5"])
    assert {4 * 7} == {len(deltas[call]) for call in ("append_kv 2 8", "append_kv 1 9", "append_kv 2 3")}
    assert len(deltas["llm_init 640"]) > pool
    assert max(len(delta) for call, delta in deltas.items() if call != "llm_init 640") < pool


def test_a_copy_tells_the_block_and_a_new_page_its_word() -> None:
    """Behind all that stands before the memory."""
    played = Played(4)
    played.do("create_sequence 1 5", "fork_sequence 1 2")
    played.do("append_kv 2 7")
    copied = played.model.delta()
    block = bytes(played.model.pools[1].memory[64:128])
    played.do("create_sequence 3 16", "append_kv 3 77")
    page = played.model.delta()

    assert copied.endswith(block)
    assert page.endswith((77).to_bytes(4, "little"))
    assert [16 + 16, 32 + 16] == [int.from_bytes(copied[4:8], "little"), int.from_bytes(copied[8:12], "little")]
    assert 1 == int.from_bytes(page[8:12], "little") - int.from_bytes(page[4:8], "little")
