"""Tests of comparisons of random traces: one wrong word of one record, whatever was compared before."""

from __future__ import annotations

import random
from array import array

import pytest

from grader.bench.traces import on_pool
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import End
from grader.runtime.native.native_played import NativePlayed
from grader.tests.support.programs import expected_records, first_case, told


@pytest.mark.parametrize("seed", range(60))
def test_one_wrong_word_is_found_where_it_is(seed: int) -> None:
    """Any word of any record of a random trace, in the first program of a class or in a later one."""
    chance = random.Random(seed)
    case = on_pool(first_case(), lab().model, blocks=4, operations=40, seed=seed)
    right = expected_records(case)
    at = chance.randrange(len(right))
    words = array("i", right[at])
    words[chance.randrange(len(words))] ^= 1 << chance.randrange(20)
    wrong = [*right[:at], words.tobytes(), *right[at + 1 :]]
    for records in chance.sample([right, wrong, right, wrong], 4):
        comparison = compare(NativePlayed(case, steps=told(records), ended=True), lab().model)
        wrong_at = [deviation.operation for deviation in comparison.deviations]
        wrong_at += [comparison.ended_at] if comparison.end is End.UNREADABLE else []

        assert min(wrong_at, default=None) == (at if records is wrong else None)
