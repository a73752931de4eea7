"""Tests of records told as what they changed: however a program tells one, it is the same record."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from grader.assignment import load
from grader.bench.traces import on_pool
from grader.core.case import Case
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import Comparison, End
from grader.runtime.native.delta import whole
from grader.runtime.native.delta_step import DeltaStep
from grader.runtime.observation import Played
from grader.tests.support import programs
from grader.tests.support.programs import expected_records, made

_CASE = made(
    "told", "create_sequence 1 40 -> seq; fork_sequence 1 2 -> seq; append_kv 2 7 -> 0; append_kv 2 8 -> 0; "
    "append_kv 1 9 -> 0; free_sequence 1 -> 0; append_kv 2 10 -> 0"
)  # fmt: skip
_MEMORY = 16 + 4 * 16 + 16
"""Words of a pool of four blocks with its guards."""


def rest(after: bytes, memory: int, start: int, end: int) -> bytes:
    """The record, told but for so many words at its end, of which those from `start` to `end` are told, too."""
    first = len(after) - 4 * memory
    return struct.pack("<3i", memory, start, end) + after[:first] + after[first + 4 * start : first + 4 * end]


def shortly(before: bytes, after: bytes) -> bytes:
    """As a driver tells it: in few words, or without most of its memory."""
    if not before:
        return whole(after)
    old, new = (array("i", record) for record in (before, after))
    different = [place - len(new) for place in range(2, len(new)) if len(old) == len(new) and old[place] != new[place]]
    if len(old) == len(new) and len(different) <= 2:
        return struct.pack("<i", -1) + after[:8] + b"".join(struct.pack("<2i", at, new[at]) for at in different)
    others = [place for place in range(_MEMORY) if old[place - _MEMORY] != new[place - _MEMORY]]
    return rest(after, _MEMORY, *((others[0], others[-1] + 1) if others else (0, 0)))


def at_length(before: bytes, after: bytes) -> bytes:
    """Right, but with more words than needed, as no driver of ours tells it."""
    return rest(after, _MEMORY // 2, 0, _MEMORY // 2) if before else whole(after)


def entirely(_: bytes, after: bytes) -> bytes:
    """As a STEP frame."""
    return whole(after)


def played(case: Case, records: list[bytes], tell: Callable[[bytes, bytes], bytes]) -> Played:
    """A case whose program left these records and told them so."""
    steps: list[DeltaStep] = []
    for before, after in pairwise([b"", *records]):
        steps.append(DeltaStep(delta=tell(before, after), before=steps[-1] if steps else None, length=len(after)))
    return Played(case, steps=[*steps], ended=True)


def seen(comparison: Comparison) -> tuple[object, ...]:
    """What a comparison found."""
    return comparison.deviations, comparison.actual, comparison.end, comparison.refused, comparison.allowed


def test_a_record_is_made_whole_when_somebody_asks() -> None:
    """The last one first, so through all before it; then each again."""
    records = expected_records(_CASE)
    told = played(_CASE, records, shortly)

    assert told.steps[-1].record == records[-1]
    assert [step.record for step in told.steps] == records
    deltas = [step.delta for step in told.steps if isinstance(step, DeltaStep)]
    assert sum(map(len, deltas)) < 0.6 * sum(map(len, records))


@pytest.mark.parametrize(
    "order", list(permutations((shortly, at_length, entirely))), ids=lambda order: order[0].__name__
)
def test_how_a_record_is_told_says_nothing_of_a_program(order: tuple[Callable[[bytes, bytes], bytes], ...]) -> None:
    """Right and wrong programs of one class, in whatever way and order: each is judged as if it were alone."""
    right = expected_records(_CASE)
    wrong = [*right[:4], *(bytes(8) + record[8:] for record in right[4:])]  # the replies alone
    for records in (right, wrong, right[:5], right):
        for tell in order:
            alone = compare(played(replace(_CASE, trace=replace(_CASE.trace)), records, tell), lab().model)
            known = compare(played(_CASE, records, tell), lab().model)

            assert seen(known) == seen(alone)
            assert bool(known.deviations) is (records is wrong)


@pytest.mark.parametrize("seed", range(60))
def test_one_wrong_word_is_found_where_it_is(seed: int) -> None:
    """Any word of any record of a random trace, however each record is told, in the first program or in a later one."""
    chance = random.Random(seed)
    case = on_pool(_CASE, lab().model, blocks=4, operations=40, seed=seed)
    right = expected_records(case)
    at = chance.randrange(len(right))
    words = array("i", right[at])
    words[chance.randrange(len(words))] ^= 1 << chance.randrange(20)
    wrong = [*right[:at], words.tobytes(), *right[at + 1 :]]

    def anyhow(before: bytes, after: bytes) -> bytes:
        return chance.choice((shortly, at_length, entirely))(before, after)

    for records in chance.sample([right, wrong, right, wrong], 4):
        found = compare(played(case, records, anyhow), lab().model)
        wrong_at = [deviation.operation for deviation in found.deviations]
        wrong_at += [found.ended_at] if found.end is End.UNREADABLE else []
        assert min(wrong_at, default=None) == (at if records is wrong else None)


def test_the_driver_sends_short_deltas() -> None:
    """An append takes a fraction of its record, whatever the size of the pool."""
    chosen = lab()
    cases = load.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed)
    appends = [
        step
        for one in programs.played(programs.right(), *cases)
        for operation, step in zip(one.case.trace.operations, one.steps, strict=True)
        if operation.name == "append_kv" and isinstance(step, DeltaStep)
    ]

    assert len(appends) > 200
    assert 5 * sum(len(step.delta) for step in appends) < sum(step.length for step in appends)
