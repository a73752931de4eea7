"""States as plain values: they can be stored as JSON, and an oracle that takes one over goes on as the first one."""
# ruff: noqa: SIM300

from __future__ import annotations

import json

import pytest

from reference.tests.paged_kv.played import TOUR, Played


@pytest.mark.parametrize("count", range(1, len(TOUR) + 1))
def test_an_oracle_goes_on_from_every_state(count: int) -> None:
    """The state of the other one is the very same, and so is what it does next."""
    played, other = Played(6), Played(None)
    played.do(*TOUR[:count])
    other.oracle.restore(json.loads(json.dumps(played.state())))

    assert played.state() == other.state()
    assert played.do("append_kv 2 -9") == other.do("append_kv 2 -9")
    assert played.state() == other.state()


def test_a_state_names_what_the_handout_names() -> None:
    """Counters, reference counts, the list, and for each sequence its table."""
    played = Played(2)
    played.do("create_sequence 7 17")
    table = [0, 1] + [-1] * 14

    assert {
        "total_local_blocks": 2,
        "free_local_blocks": 0,
        "ref_count": [1, 1],
        "active_seqs": [7],
        "sequences": {"7": {"kv_count": 17, "block_table": [table, *[None] * 15]}},
    } == played.state()["1"]["engine"]


def test_an_engine_number_without_a_pool_is_not_in_the_state() -> None:
    """Numbers are those of the engines that were made."""
    played = Played(None)
    played.do("llm_init NULL 64", "@2 llm_init 64")

    assert ["2"] == list(played.state())


def test_restoring_forgets_what_was_before() -> None:
    """Also engines and pools that the state does not have."""
    played = Played(2)
    played.do("@2 llm_init 64")
    played.oracle.restore({})

    assert {} == played.state()
    assert "Constraint 1/null-engine" == played.do("create_sequence 1 1").clause


def test_a_state_is_not_changed_by_what_comes_after_it() -> None:
    """Neither one that was asked for nor one that was taken over."""
    played = Played(2)
    played.do("create_sequence 1 5")
    before, text = played.state(), json.dumps(played.state())
    played.oracle.restore(before)
    played.do("append_kv 1 7", "fork_sequence 1 2", "move_l2 1 0 3", "unmap 2 0")

    assert text == json.dumps(before)
