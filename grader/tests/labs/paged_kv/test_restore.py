"""PagedKV.restore: the state of any program is taken over, unless it is too broken to go on from."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from grader.labs.paged_kv import states as names
from grader.labs.paged_kv.states import State
from grader.runtime.native import values
from grader.tests.labs.paged_kv import wrong
from grader.tests.labs.paged_kv.edits import SMALL, Edit, engine_of, sequence_of
from grader.tests.labs.paged_kv.played import Played
from reference.oracle import CannotGoOn, CannotPoke
from reference.tests.paged_kv.played import TOUR, operation


def program(edit: Edit) -> bytes:
    """A program's record after three calls, wrong where `edit` made it wrong."""
    played = Played(4, engines=2)
    played.do("@2 llm_init 128", "@2 create_sequence 1 5", "create_sequence 1 20", "fork_sequence 1 2")
    return played.edited(edit)


def broken_states() -> dict[str, tuple[Edit, str]]:
    """States from which nothing follows unless the reference's is known, and why."""

    def no_counts(record: State) -> None:
        engine_of(record)["ref_count"] = SMALL

    def no_list(record: State) -> None:
        engine_of(record)["next"] = None

    def twins(record: State) -> None:
        engine_of(record)["active_seqs"] = [1, 1]
        del engine_of(record)["sequences"]["2"]

    def negative(record: State) -> None:
        sequence_of(record, 2)["kv_count"] = -1

    def no_table(record: State) -> None:
        sequence_of(record, 2)["block_table"] = None

    return {
        "ref_count": (no_counts, "ref_count is a pointer to an allocation that is too small"),
        "list": (no_list, "the walk along next from active_seqs meets NULL"),
        "twins": (twins, "two sequences have the id 1"),
        "kv_count": (negative, "sequence 2 has a negative kv_count"),
        "L1": (no_table, "sequence 2 has .* a block_table that cannot be read"),
    }


@pytest.mark.parametrize("name", broken_states())
@pytest.mark.parametrize("line", ["append_kv 1 7", "create_sequence 1 5", "@2 append_kv 1 7"])
def test_the_model_does_not_go_on_from_a_broken_state(name: str, line: str) -> None:
    """When nobody knows what should be there; restore and judge both say why."""
    edit, why = broken_states()[name]
    before = program(edit)
    model = Played(None, engines=2).model

    with pytest.raises(CannotGoOn, match=why):
        model.restore(before)
    with pytest.raises(CannotGoOn, match=why):
        model.judge(before, operation(line), before)


def test_blocks_that_a_program_chose_are_forgotten_when_a_state_is_taken_over() -> None:
    """They belong to the call that was judged; the next one takes the first free block."""
    played = Played(4)
    before = played.record()
    played.do("create_sequence 1 5")

    def last_block(record: State) -> None:
        engine_of(record)["ref_count"] = [0, 0, 0, 1]
        sequence_of(record, 1)["block_table"][0][0] = 3

    model, chosen = Played(None).model, played.edited(last_block)
    judgement = model.judge(before, operation("create_sequence 1 5"), chosen)
    model.restore(chosen)
    model.apply(operation("create_sequence 2 5"))

    assert [difference.facet for difference in judgement.differences] == ["choice"]
    assert values.decode(model.record())["state"]["1"]["engine"]["ref_count"] == [1, 0, 0, 1]


@pytest.mark.parametrize("line", ["create_sequence 3 5", "append_kv 2 7"])
def test_the_model_does_not_go_on_when_the_count_of_free_blocks_lies(line: str) -> None:
    """free_local_blocks is above 0, but no block has ref_count 0."""
    played = Played(2)
    played.do("create_sequence 1 20", "fork_sequence 1 2")

    def lie(record: State) -> None:
        engine_of(record)["free_local_blocks"] = 1

    before = played.edited(lie)

    with pytest.raises(CannotGoOn, match="no block has ref_count 0"):
        played.model.judge(before, operation(line), before)


def real_records() -> list[tuple[bytes, str, bytes]]:
    """The record before a line, the line, and the record after it: right ones and wrong ones."""
    played, found = Played(6, engines=2), []
    for line in TOUR[:-2]:
        before = played.record()
        played.do(line)
        edits = [lambda _: None, wrong.no_ref_count, wrong.astray, wrong.one_way, wrong.pool_pointer]
        found += [(before, line, played.edited(edit)) for edit in edits]
    return found


def damaged(record: bytes, chance: random.Random) -> bytes:
    """The record with words flipped, cut out, put in or repeated; now and then it ends within a word."""
    words = array("i", record)
    for _ in range(chance.randrange(1, 3)):
        start = chance.randrange(chance.choice([99, len(words)]))
        run = words[start : start + chance.randrange(1, 9)]
        flipped = array("i", [run[0] ^ 1 << chance.randrange(31)]) + run[1:]
        others = array("i", [chance.choice([-1, 0, 1, 2, 4, 6, 8, 64, 2**31 - 1]) for _ in run])
        changed = [*[flipped] * 5, others, others[:1] + run[1:], run[:0], others + run, run + run]
        words[start : start + len(run)] = chance.choice(changed)
    return words.tobytes()[: None if chance.random() < 0.9 else -chance.randrange(1, 4)]


def reads(record: bytes, before: bytes, line: str, right: bytes) -> Iterator[tuple[str, bool]]:
    """Everything that reads a record, and whether it was content; nothing else than these errors may be raised."""
    model = Played(None, engines=2).model
    readers: dict[str, Callable[[], object]] = {
        "judge": lambda: model.judge(before, operation(line), record),
        "go on": lambda: model.judge(record, operation(line), right),
        "describe": lambda: model.describe(record),
        "restore": lambda: model.restore(record),
        "places": lambda: names.places(record, 2),
        "decode": lambda: values.decode(record),
        "offsets": lambda: values.offsets(record),
    }
    allowed = {"places": (ValueError,), "judge": (CannotGoOn, CannotPoke), "go on": (CannotGoOn, CannotPoke)}
    for name, reader in readers.items():
        try:
            reader()
            yield name, True
        except allowed.get(name, (CannotGoOn,)):
            yield name, False


def test_damaged_records_are_read_or_refused() -> None:
    """Whatever a forger sends in the place of a record, only what is documented is raised."""
    chance, records = random.Random(1), real_records()
    seen: Counter[tuple[str, bool]] = Counter()
    for _ in range(1000):
        before, line, right = chance.choice(records)
        seen.update(reads(damaged(right, chance), before, line, right))

    assert len(seen) == 14
    assert min(seen.values()) > 100, seen
