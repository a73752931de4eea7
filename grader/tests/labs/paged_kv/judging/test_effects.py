"""What a call did: what it took and stored, and nothing when it is refused."""

from __future__ import annotations

import pytest

from grader.tests.labs.paged_kv.judging.played import Played
from reference.tests.paged_kv.refused import REFUSED, SETTING


@pytest.mark.parametrize("call", ["append_kv", "create_sequence"])
def test_the_effects_are_those_of_the_last_call(call: str) -> None:
    """A judgement is made of them, and of nothing older."""
    played = Played(4)
    played.do("create_sequence 1 5", "fork_sequence 1 2", "append_kv 2 7")
    copy = played.model.effects

    assert (copy.taken, copy.seq_id, copy.logical, copy.stored, copy.copied) == ((1,), 2, 0, 16 + 5, (0, 1))

    played.do(f"{call} 5 1")
    last = played.model.effects

    assert (last.taken, last.stored, last.copied) == ((2,) if call == "create_sequence" else (), None, None)


@pytest.mark.parametrize(
    ("lines", "taken", "stored"),
    [(["create_sequence 1 5"], (), 5), (["create_sequence 1 16"], (1,), 16), (["create_sequence 1 613"], (), 613)],
)
def test_an_append_stores_one_word(lines: list[str], taken: tuple[int, ...], stored: int) -> None:
    """In the block that is mapped, or in the one that it takes."""
    played = Played(40)
    played.do(*lines, "append_kv 1 7")

    assert (played.model.effects.taken, played.model.effects.stored) == (taken, stored)


@pytest.mark.parametrize("line", REFUSED)
def test_a_refused_call_takes_and_writes_nothing(line: str) -> None:
    """Neither a block, nor a word of the pool."""
    played = Played(4)
    played.do(*SETTING, line)
    effects = played.model.effects

    assert (effects.taken, effects.stored, effects.copied, effects.allowed) == ((), None, None, ())
