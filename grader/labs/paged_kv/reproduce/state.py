"""Checks of the state after the last operation, as lines of C, each under a sentence of the handout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from grader.labs.paged_kv.reproduce.story import Played, Pool, Story, engine_name
from grader.runtime.native.c_program import c_call, fold
from reference.operation import Operation
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED, Sequence

_CONTRACT = "Constraint 2/contract"
_ISOLATION = "Part 2.3/global-state"

_DEMANDS = {
    ("llm_init", "total"): "Task 1/total-blocks",
    ("llm_init", "pool_base_ptr"): "Task 1/pool-pointer",
    ("llm_init", "free"): "Task 1/free-blocks",
    ("llm_init", "ref_count"): "Task 1/ref-count-zero",
    ("llm_init", "list"): "Task 1/empty-list",
    ("create_sequence", "list"): "Task 2/tail",
    ("create_sequence", "kv_count"): "Task 2/kv-count",
    ("create_sequence", "tables"): "Task 2/map-blocks",
    ("create_sequence", "ref_count"): "Task 2/map-blocks",
    ("create_sequence", "free"): "Constraint 5/decrement",
    ("free_sequence", "list"): "Task 2/free-detach",
    ("free_sequence", "ref_count"): "Task 2/free-decrement",
    ("fork_sequence", "list"): "Task 3/tail",
    ("fork_sequence", "own_tables"): "Task 3/own-tables",
    ("fork_sequence", "kv_count"): "Task 3/kv-count",
    ("fork_sequence", "tables"): "Task 3/copy-tables",
    ("fork_sequence", "ref_count"): "Task 3/increment",
    ("fork_sequence", "free"): "Part 2.3/shared-prefix",
    ("append_kv", "kv_count"): "Task 4/count-returns",
    ("append_kv", "pool"): "Task 4/store",
    ("in-place", "tables"): "Task 4/exclusive",
    ("in-place", "ref_count"): "Task 4/exclusive",
    ("in-place", "free"): "Task 4/exclusive",
    ("new-page", "tables"): "Task 4/new-page",
    ("new-page", "ref_count"): "Task 4/new-page",
    ("new-page", "free"): "Constraint 5/decrement",
    ("copy-on-write", "tables"): "Task 4/cow-remap",
    ("copy-on-write", "ref_count"): "Task 4/cow-counts",
    ("copy-on-write", "free"): "Task 4/cow-counts",
    ("copy-on-write", "pool"): "Task 4/cow-copy",
    ("", "list"): "Part 2.5/intrusive-list",
    ("", "kv_count"): "Part 2.2/logical-index",
    ("", "tables"): "Part 2.2/table-walk",
    ("", "ref_count"): "Part 2.3/ref-count",
    ("", "free"): "Constraint 5/increment",
    ("", "pool"): "Constraint 4/no-write",
}
"""The clause for a part of the state after a call, or after an append of a certain kind; "": in all other cases."""


def state(story: Story) -> Iterator[tuple[str, list[str]]]:
    """Yield each clause with the lines that check it, the called engine before the others."""
    last = story.last
    if last.reply.refused:
        yield _CONTRACT, ["NOTHING_ALLOCATED();"]
    target = last.operation.target
    for number in sorted(story.current, key=lambda number: number != target):
        own = number == target
        call = last.operation if own and last.accepted else None
        pool = story.current[number]
        if number in story.oracle.engines:
            for part, lines in _engine(story.oracle.engines[number], engine_name(number), pool, call):
                yield _clause(part, last, own=own), lines
        yield _clause("pool", last, own=own), [f"POOL({pool.memory}, {pool.want}, {pool.blocks});"]


def _clause(part: str, last: Played, *, own: bool) -> str:
    if last.reply.refused:
        return _CONTRACT
    if not own:
        return _ISOLATION
    situations = (*sorted(last.reply.circumstances), last.operation.name, "")
    return next(_DEMANDS[situation, part] for situation in situations if (situation, part) in _DEMANDS)


def _engine(engine: Engine, name: str, pool: Pool, call: Operation | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of an engine after `call`. The parts that say most about a mistake come first."""
    total = f"EQUAL({name}->total_local_blocks, {engine.total_local_blocks});"
    base = f"CHECK({name}->pool_base_ptr == {pool.memory}.block);"
    free = f"EQUAL({name}->free_local_blocks, {engine.free_local_blocks});"
    ref_count = c_call("ARRAY", f"{name}->ref_count", *map(str, engine.ref_count))
    if call is not None and call.name == "llm_init":
        yield "total", [total]
        yield "free", [free]
        yield "pool_base_ptr", [base]
        yield "ref_count", [ref_count]
        yield "list", list(_list(engine, name))
        return
    yield "list", list(_list(engine, name))
    if call is not None and call.name == "fork_sequence":
        yield "own_tables", list(_own_tables(engine, name, *call.numbers))
    yield "kv_count", list(_kv_counts(engine, name))
    yield "tables", list(_tables(engine, name))
    yield "ref_count", [ref_count]
    yield "free", [free, total, base]


def _list(engine: Engine, name: str) -> Iterator[str]:
    if engine.active_seqs:
        yield c_call("LIST", name, *(str(sequence.seq_id) for sequence in engine.active_seqs))
    else:
        for link in ("prev", "next"):
            yield f"CHECK({name}->active_seqs.{link} == &{name}->active_seqs);"


def _own_tables(engine: Engine, name: str, parent: int, child: int) -> Iterator[str]:
    child_table, parent_table = f"sequence({name}, {child})->block_table", f"sequence({name}, {parent})->block_table"
    yield f"CHECK({child_table} != {parent_table});"
    forked = engine.find(child)
    for slot, table in enumerate(forked.block_table if forked is not None else ()):
        if table is not None:
            yield f"CHECK({child_table}[{slot}] != {parent_table}[{slot}]);"


def _kv_counts(engine: Engine, name: str) -> Iterator[str]:
    for run in fold(engine.active_seqs, lambda _: (), lambda sequence: (sequence.seq_id, sequence.kv_count)):
        seq_id, kv_count = run.texts()
        yield from run.looped([f"EQUAL(sequence({name}, {seq_id})->kv_count, {kv_count});"])


def _tables(engine: Engine, name: str) -> Iterator[str]:
    for run in fold(engine.active_seqs, _shape, lambda sequence: (sequence.seq_id, *sequence.mapped_blocks())):
        seq_id, *blocks = run.texts()
        table = f"sequence({name}, {seq_id})->block_table"
        yield from run.looped(list(_table(table, run.items[0], blocks)))


def _shape(sequence: Sequence) -> tuple[object, ...]:
    """Return which L1 slots have a table, and which entries of these tables are mapped."""
    return tuple(
        None if table is None else tuple(entry != UNMAPPED for entry in table) for table in sequence.block_table
    )


def _table(name: str, sequence: Sequence, blocks: Iterable[str]) -> Iterator[str]:
    """Yield the check of every L1 slot: its 16 entries, or NULL; neighbouring NULLs in one line."""
    numbers = iter(blocks)
    for empty, group in groupby(enumerate(sequence.block_table), lambda slot: slot[1] is None):
        slots = list(group)
        if empty:
            yield f"NULLS({name}, {slots[0][0]}, {slots[-1][0]});"
        for slot, table in slots:
            if table is not None:
                entries = ("-1" if entry == UNMAPPED else next(numbers) for entry in table)
                yield c_call("ARRAY", f"{name}[{slot}]", *entries)
