"""Whatever happened before: a state can be taken over, and what can never be is not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from grader.labs.hybrid.oracle import HybridOracle, circumstances
from grader.labs.hybrid.traces import generate
from reference.hybrid.kinds import Cross, ceil
from reference.operation import Operation
from reference.oracle import CannotGoOn

_SEEDS = range(120)
_LENGTH = 60


def played(seed: int) -> Iterator[tuple[HybridOracle, Operation]]:
    """The engine before each operation of a random trace, which is then applied to it."""
    engine = HybridOracle()
    for operation in generate(Random(seed), _LENGTH):
        yield engine, operation
        engine.apply(operation)


@pytest.mark.parametrize("part", range(4))
def test_an_engine_goes_on_from_a_state_as_if_it_had_been_there(part: int) -> None:
    """A new engine that takes over each state does the same as the one that was there all the time."""
    for seed in _SEEDS[part::4]:
        engine = HybridOracle()
        for operation in generate(Random(seed), _LENGTH):
            other = HybridOracle()
            other.restore(json.loads(json.dumps(engine.state())))
            assert other.apply(operation) == engine.apply(operation), (seed, operation)
            assert other.state() == engine.state(), (seed, operation)


def test_a_refused_call_changes_nothing_but_what_it_releases() -> None:
    """Whichever call refuses; a `step` and an `admit` may have released blocks."""
    for seed in _SEEDS:
        engine = HybridOracle()
        for operation in generate(Random(seed), _LENGTH):
            before = engine.state()
            reply = engine.apply(operation)
            after = engine.state()
            if reply.refused and "released" not in circumstances(before, operation, reply, after):
                assert {**before, "looked": []} == {**after, "looked": []}, (seed, operation)


def test_queue_counts_and_tables_agree() -> None:
    """A block is free or used, by as many as its count says, all in one group; nulls stand at the front."""
    for seed in _SEEDS:
        for engine, operation in played(seed):
            where = (seed, operation)
            places = [
                (block, group) for of in engine.tables.values() for group, table in enumerate(of) for block in table
            ]
            users = Counter(block for block, _ in places if block)
            assert users == engine.pool.ref, where
            if engine.settings:
                assert sorted([*engine.pool.free_queue, *users]) == list(range(1, engine.settings[0])), where
            assert len({pair for pair in places if pair[0]}) == len(users), where
            for tables in engine.tables.values():
                assert all(0 not in table[table.count(0) :] for table in tables), where


def test_tables_cover_what_is_computed_and_drop_what_nobody_needs() -> None:
    """The length of each table, and how many nulls are at its front, after each successful call."""
    for seed in _SEEDS:
        engine = HybridOracle()
        for operation in generate(Random(seed), _LENGTH):
            name = operation.arguments[0] if operation.name in ("admit", "step") else ""
            start = engine.requests[str(name)].computed if name else 0
            found = engine.looked[2] if operation.name == "admit" else 0
            reply = engine.apply(operation)
            if not name or reply.refused:
                continue
            known = engine.requests[str(name)]
            for group, table in zip(engine.groups, engine.tables[str(name)], strict=True):
                slots = known.num_encoder_tokens if isinstance(group, Cross) else known.computed
                assert len(table) == ceil(slots, group.block_size), (seed, operation)
                nulls = min(group.skipped(start + found) // group.block_size, len(table))
                assert table.count(0) == nulls, (seed, operation)


def test_indexed_blocks_hold_what_the_index_says() -> None:
    """A block in a table is indexed, if at all, under its own text and group."""
    for seed in _SEEDS:
        for engine, operation in played(seed):
            keys = {block: key for key, blocks in engine.pool.index.items() for block in blocks}
            for name, tables in engine.tables.items():
                for group_id, table in enumerate(tables):
                    size = engine.groups[group_id].block_size
                    for position, block in enumerate(table):
                        text = engine.requests[name].tokens[: (position + 1) * size]
                        assert keys.get(block) in (None, f"{text}/{group_id}"), (seed, operation)


def test_large_pages_are_free_or_of_one_type() -> None:
    """No byte belongs to two slots, no large page is lost, and none is in use without a slot that holds something."""
    for seed in _SEEDS:
        for engine, operation in played(seed):
            where = (seed, operation)
            assert sorted([*engine.free_large_pages, *engine.owner]) == list(range(engine.num_large_pages)), where
            taken = [
                byte
                for name, slots in engine.slots.items()
                for small_id in slots
                for byte in range(small_id * engine.page_bytes[name], (small_id + 1) * engine.page_bytes[name])
            ]
            assert len(taken) == len(set(taken)) == len(engine.owner) * engine.large_page_bytes, where
            for page in engine.owner:
                held = [
                    slot
                    for name, slots in engine.slots.items()
                    for small_id, slot in slots.items()
                    if small_id // engine.ratio[name] == page
                ]
                assert set(held) != {"empty"}, where


def test_a_table_with_a_free_block_is_no_state() -> None:
    """Nothing follows from it."""
    engine = HybridOracle()
    engine.manager(4, (("full", 1, 0),), caching=True)
    engine.new("a", "ab", 0)
    engine.step("a", 1)
    state = engine.state()
    state["ref"] = {}

    with pytest.raises(CannotGoOn):
        HybridOracle().restore(state)


def test_hits_belong_to_the_match_just_before() -> None:
    """An `admit` without it is no call of the handout."""
    engine = HybridOracle()
    engine.manager(4, (("full", 1, 0),), caching=True)
    for name, arguments in (("new", ("a", "ab", 0)), ("match", ("a",)), ("evict", ((),))):
        engine.apply(Operation(name=name, arguments=arguments))

    with pytest.raises(CannotGoOn):
        engine.apply(Operation(name="admit", arguments=("a", 1)))


def test_hits_are_for_a_request_that_holds_nothing() -> None:
    """The handout says so; from a state of a program that did it wrongly, it goes on all the same."""
    engine = HybridOracle()
    engine.manager(6, (("full", 1, 0),), caching=True)
    calls = [Operation(name="match", arguments=("a",)), Operation(name="admit", arguments=("a", 1))]
    for operation in (Operation(name="new", arguments=("a", "abc", 0)), *calls, calls[0]):
        engine.apply(operation)
    other = HybridOracle()
    other.restore(engine.state())
    other.apply(calls[1])

    with pytest.raises(CannotGoOn, match="holds nothing"):
        engine.apply(calls[1])
    engine.apply(Operation(name="preempt", arguments=("a",)))
    for operation in calls:
        engine.apply(operation)


def test_every_kind_of_call_is_accepted_and_refused() -> None:
    """The random traces reach what written cases reach, each of the five steps too."""
    seen, steps = set(), set[str]()
    for seed in range(400):
        engine = HybridOracle()
        for operation in generate(Random(seed), _LENGTH):
            reply = engine.apply(operation)
            seen.add((operation.name, reply.text if reply.refused else ""))
            steps |= {reply.clause} if "/step-" in reply.clause else set()

    assert steps == {f"Part 2/step-{number}" for number in range(1, 6)}
    assert {pair for pair in seen if pair[1]} == {
        *((name, "null") for name in ("admit", "step", "alloc")),
        *((name, "ValueError") for name in ("manager", "step", "alloc", "free_page", "release", "reuse", "offset")),
        *((name, "ValueError") for name in ("fit", "waste")),
        ("unify", "NotImplementedError"),
    }
    assert {name for name, refused in seen if not refused} == {
        *("manager", "new", "append", "match", "admit", "step", "free", "preempt", "evict", "spoil"),
        *("lcm", "alloc", "free_page", "release", "reuse", "remove", "offset"),
        *("fit", "unify", "group", "config", "waste"),
    }
