"""Tests of comparisons of random traces: one wrong word of one record, whatever was compared before."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

from grader.core.case import Case, Expected
from grader.core.model import play
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import NativePlayed
from grader.runtime.protocol import End
from grader.tests.support.programs import expected_records, first_case, told
from reference.operation import Operation, Trace
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK


def random_case(seed: int) -> Case:
    """A case with 40 random calls on a pool of four blocks."""
    chance, pattern, model = random.Random(seed), first_case(), lab().model
    calls = [Operation(name="llm_init", arguments=(4 * BLOCK_SIZE,))]
    alive: list[int] = []
    for new in range(1, 40):
        kind = chance.random()
        if not alive or (kind < 0.10 and len(alive) < 8):
            calls.append(Operation(name="create_sequence", arguments=(new, chance.randint(1, 6 * KV_PER_BLOCK))))
            alive.append(new)
        elif kind < 0.15 and len(alive) < 8:
            calls.append(Operation(name="fork_sequence", arguments=(chance.choice(alive), new)))
            alive.append(new)
        elif kind < 0.25:
            calls.append(Operation(name="free_sequence", arguments=(alive.pop(chance.randrange(len(alive))),)))
        else:
            calls.append(Operation(name="append_kv", arguments=(chance.choice(alive), chance.randint(0, 1 << 30))))
    calls.append(Operation(name="llm_destroy"))
    trace = Trace(operations=tuple(calls), settings={"seed": pattern.trace.settings["seed"]})
    expected = Expected.of(play(model(trace), trace))
    return replace(pattern, name=f"random/{seed}", trace=trace, expected=expected)


@pytest.mark.parametrize("seed", range(60))
def test_one_wrong_word_is_found_where_it_is(seed: int) -> None:
    """Any word of any record of a random trace, in the first program of a class or in a later one."""
    chance = random.Random(seed)
    case = random_case(seed)
    right = expected_records(case)
    at = chance.randrange(len(right))
    words = array("i", right[at])
    words[chance.randrange(len(words))] ^= 1 << chance.randrange(20)
    wrong = [*right[:at], words.tobytes(), *right[at + 1 :]]
    for records in chance.sample([right, wrong, right, wrong], 4):
        comparison = compare(NativePlayed(case, steps=told(records), ended=True), lab().model)
        wrong_at = [*comparison.wrong]
        wrong_at += [comparison.ended_at] if comparison.end is End.UNREADABLE else []

        assert min(wrong_at, default=None) == (at if records is wrong else None)
