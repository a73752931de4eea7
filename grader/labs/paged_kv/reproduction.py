"""A case of `paged_kv` as a C program: the calls in order, then checks of the whole state after the last one.

Before the last operation the program checks only replies: it ends with the case's first bad operation, so all
operations before it were right. After each call that stores, lines update the expected content of the pool.

The program detects memory errors with its own malloc (heap.c.jinja). A checked pattern around allocations would be
shorter, but detects only writes, and only after the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from grader.core.case import Case
from grader.labs.paged_kv.judging import effects
from grader.runtime.native.c_program import FoldedRun, c_call, c_comment, c_string, fold, render
from reference.operation import NULL, Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, L2_PT_SIZE
from reference.paged_kv.engine import Engine
from reference.paged_kv.oracle import PagedKV
from reference.paged_kv.pool import GUARD_WORDS
from reference.paged_kv.sequence import UNMAPPED, Sequence

_POKES = frozenset({"move_l2", "unmap", "set_kv_count"})
_TEMPLATE = Path(__file__).with_name("program.c.jinja")
_HELPERS = re.compile(r"\b(CHECK|EQUAL|SEQUENCE|ARRAY|LIST|NULLS|NOTHING_ALLOCATED|POOL|sequence)\(")


def reproduce(case: Case, operation: int, *, clauses: Mapping[str, str], command: str) -> str:
    """Return a program of the case up to and including that operation (counted from 0); `command` builds it."""
    story = Story(case, operation)
    body = "\n".join(_Body(story, clauses).lines()).lstrip()
    used = set(_HELPERS.findall(body))
    blocks = max([1, *(pool.blocks for pool in story.pools)])
    last = story.last.operation.name
    calls = sum(step.operation.name == last for step in story.played[:-1])
    tail = max([0, *(pool.pool_bytes - blocks * BLOCK_SIZE for pool in story.pools)])
    return render(
        _TEMPLATE,
        title=case.title,
        name=case.name,
        line=story.last.operation.line,
        last=story.last.text,
        clauses=[_cited(clauses, clause) for clause in case.handout],
        command=command,
        stops_in="" if last in _POKES else last,
        before_it=calls,
        body=body,
        used=used,
        compares_numbers=not used.isdisjoint(("EQUAL", "SEQUENCE", "ARRAY")),
        reads_memory=not used.isdisjoint(("SEQUENCE", "ARRAY", "LIST", "sequence")),
        loops="for (i = " in body,
        no_error=_cited(clauses, "Compilation/no-error"),
        no_pool=_cited(clauses, "Task 5/pool"),
        pools=story.pools,
        blocks=blocks,
        before=GUARD_WORDS + case.trace.settings.get("pool_align", 0) % BLOCK_SIZE // KV_SIZE,
        behind=GUARD_WORDS + (tail + KV_SIZE - 1) // KV_SIZE,
    )


class _Body:
    """Writes the lines of the program's function `the_case`."""

    def __init__(self, story: Story, clauses: Mapping[str, str]) -> None:
        self.story = story
        self.clauses = clauses
        self.demanded = ""
        """The clause that the last `demand` line cites."""

    def lines(self) -> Iterator[str]:
        """Yield all lines, without the indent of a function."""
        *before, last = self.story.played
        for run in (*_runs(before), *_runs([last])):
            yield from self._step(run)
        for clause, checks in state(self.story):
            if checks:
                yield from self._demand(clause)
                yield from checks
        yield from self._closing()

    def _step(self, run: FoldedRun[ReferenceStep]) -> Iterator[str]:
        """Yield the lines of one operation, or of several that come from one line of the case file."""
        first, operation = run.items[0], run.items[0].operation
        text = f"{first.text} and so on to {run.items[-1].operation}" if run.folded else first.text
        line = f" (line {operation.line} of the case)" if operation.line else ""
        clause = first.reply.clause
        why = _cited(self.clauses, clause) if clause else "nothing, this is changed by hand"
        yield ""
        if operation.comment:
            yield f"/* {c_comment(operation.comment)} */"
        yield f"STEP({c_string(text + line, column=5)},"
        yield f"     {c_string(why, column=5)});"
        yield from run.looped(list(_call(first, run.texts())))

    def _demand(self, clause: str) -> Iterator[str]:
        if clause != self.demanded:
            yield ""
            yield f"demand({c_string(_cited(self.clauses, clause), column=7)});"
        self.demanded = clause

    def _closing(self) -> Iterator[str]:
        """Yield the check that nothing stays allocated; before it, a case that is cut short destroys its engines."""
        if self.story.oracle.engines:
            yield ""
            yield "/* the case goes on, but not here */"
            yield 'STEP("llm_destroy, to tidy up",'
            yield f"     {c_string(_cited(self.clauses, 'Task 5/engine-memory'), column=5)});"
            for number in self.story.oracle.engines:
                yield f"llm_destroy({engine_name(number)});"
        yield from self._demand("Compilation/no-leak")
        yield "NO_LEAK();"


def _cited(clauses: Mapping[str, str], clause: str) -> str:
    """Return a sentence of the handout, with its place."""
    return f"{clause.partition('/')[0]}: {clauses[clause]}"


def _runs(played: list[ReferenceStep]) -> Iterator[FoldedRun[ReferenceStep]]:
    return fold(played, lambda step: step.shape, lambda step: step.numbers)


def _call(step: ReferenceStep, numbers: list[str]) -> Iterator[str]:
    """Yield one operation in C; `numbers` are its arguments, then block and slot of the KV record."""
    name, reply, engine = step.operation.name, step.reply.text, engine_name(step.operation.target)
    call = f"{name}({', '.join([engine, *numbers[: len(step.operation.arguments)]])})"
    if name == "llm_init":
        yield from _init(step, engine)
    elif name in _POKES:
        yield from _poke(step, engine, numbers)
    elif reply == "seq":
        yield f"SEQUENCE({call}, {numbers[1 if name == 'fork_sequence' else 0]});"
    elif reply == "NULL":
        yield f"CHECK({call} == NULL);"
    else:
        yield f"EQUAL({call}, {reply});"
    if step.stored is not None and step.pool is not None:
        want = f"{step.pool.want}.block"
        if step.copied is not None:
            old, new = step.copied
            yield f"memcpy({want}[{new}], {want}[{old}], BLOCK_SIZE);"
        _, kv_data, block, slot = numbers
        yield f"{want}[{block}][{slot}] = {kv_data};"


def _init(step: ReferenceStep, engine: str) -> Iterator[str]:
    *null, size = step.operation.arguments
    pool = "NULL" if null or step.pool is None else f"{step.pool.memory}.block"
    if step.reply.refused:
        yield f"CHECK(llm_init({pool}, {size}) == NULL);"
    else:
        yield f"{'LLMEngine *' if step.declares else ''}{engine} = llm_init({pool}, {size});"
        yield f"CHECK({engine} != NULL);"


def _poke(step: ReferenceStep, engine: str, numbers: list[str]) -> Iterator[str]:
    """Yield what a poke changes by hand."""
    seq_id, *places = numbers
    sequence = f"sequence({engine}, {seq_id})"
    if step.operation.name == "set_kv_count":
        yield f"{sequence}->kv_count = {places[0]};"
    elif step.unmapped is None:
        source, target = places
        yield f"{sequence}->block_table[{target}] = {sequence}->block_table[{source}];"
        yield f"{sequence}->block_table[{source}] = NULL;"
    else:
        block, last = step.unmapped
        l1, l2 = divmod(int(places[0]), L2_PT_SIZE)
        yield f"{sequence}->block_table[{l1}][{l2}] = -1;"
        yield f"{engine}->ref_count[{block}]--;"
        if last:
            yield f"{engine}->free_local_blocks++;"


class ProgramPool(NamedTuple):
    """A pool of the program: the variables for its content and for its expected content, and its size."""

    memory: str
    want: str
    pool_bytes: int

    @property
    def blocks(self) -> int:
        """The number of physical blocks, rounded down."""
        return self.pool_bytes // BLOCK_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep:
    """One operation, with its result in the reference."""

    number: int
    operation: Operation
    reply: Reply
    pool: ProgramPool | None
    declares: bool = False
    """Whether it makes the first engine of this number, so that the program declares the variable here."""
    stored: tuple[int, int] | None = None
    """Block and slot of the KV record."""
    copied: tuple[int, int] | None = None
    """Old and new block of a copy-on-write."""
    unmapped: tuple[int, bool] | None = None
    """The block that an `unmap` poke releases, and whether that was its last reference."""

    @property
    def text(self) -> str:
        """The operation as the case file writes it."""
        return f"{self.operation} -> {self.reply.text}" if self.reply.text else str(self.operation)

    @property
    def accepted(self) -> bool:
        """Whether it is a call that succeeds."""
        return bool(self.reply.text) and not self.reply.refused

    @property
    def shape(self) -> tuple[object, ...]:
        """The key for loops: neighbours of one shape, which come from one `repeat` line, may share a loop."""
        operation = self.operation
        if operation.name in ("llm_init", "llm_destroy") or self.copied or self.unmapped:
            return (self.number,)
        return (operation.line, operation.name, operation.target, self.reply.text, self.reply.clause)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that a loop may count: the arguments, then block and slot of the KV record."""
        arguments = tuple(argument for argument in self.operation.arguments if isinstance(argument, int))
        return arguments + (self.stored or ())


class Story:
    """A case's operations up to and including number `operation` (counted from 0), and the state after them."""

    def __init__(self, case: Case, operation: int) -> None:
        self.oracle = PagedKV(case.trace)
        self.pools: list[ProgramPool] = []
        """One pool for every call of llm_init that gets a pool."""
        self.current: dict[int, ProgramPool] = {}
        """The pool that each engine number has now."""
        operations = case.trace.operations[: operation + 1]
        self.played: list[ReferenceStep] = []
        for next_operation in operations:
            self.played.append(self._play(next_operation))
        self.last = self.played[-1]

    def _play(self, operation: Operation) -> ReferenceStep:
        name, target = operation.name, operation.target or 0
        unmapped = self._unmapped(operation) if name == "unmap" else None
        first = not any(step.declares and step.operation.target == target for step in self.played)
        did = effects.apply(self.oracle, operation)
        if name == "llm_init" and NULL not in operation.arguments:
            suffix = str(len(self.pools) + 1) if self.pools else ""
            self.current[target] = ProgramPool(f"memory{suffix}", f"want{suffix}", operation.numbers[0])
            self.pools.append(self.current[target])
        stored = None if did.stored is None else divmod(did.stored, KV_PER_BLOCK)
        return ReferenceStep(
            number=len(self.played),
            operation=operation,
            reply=did.reply,
            pool=self.current.get(target),
            declares=name == "llm_init" and not did.reply.refused and first,
            stored=stored,
            copied=did.copied,
            unmapped=unmapped,
        )

    def _unmapped(self, operation: Operation) -> tuple[int, bool]:
        seq_id, logical = operation.numbers
        engine = self.oracle.engines[operation.target or 0]
        sequence = engine.find(seq_id)
        assert sequence is not None
        block = sequence.block_at(logical)
        return block, engine.ref_count[block] == 1


def engine_name(number: int | None) -> str:
    """Return the variable of an engine; "NULL" when there is no engine."""
    return "NULL" if number is None else "engine" if number == 1 else f"engine{number}"


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


def _clause(part: str, last: ReferenceStep, *, own: bool) -> str:
    if last.reply.refused:
        return _CONTRACT
    if not own:
        return _ISOLATION
    situations = (*sorted(last.reply.circumstances), last.operation.name, "")
    return next(_DEMANDS[situation, part] for situation in situations if (situation, part) in _DEMANDS)


def _engine(engine: Engine, name: str, pool: ProgramPool, call: Operation | None) -> Iterator[tuple[str, list[str]]]:
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
    """Yield the check of every L1 slot: its entries, or NULL; neighbouring NULLs in one line."""
    numbers = iter(blocks)
    for empty, group in groupby(enumerate(sequence.block_table), lambda slot: slot[1] is None):
        slots = list(group)
        if empty:
            yield f"NULLS({name}, {slots[0][0]}, {slots[-1][0]});"
        for slot, table in slots:
            if table is not None:
                entries = ("-1" if entry == UNMAPPED else next(numbers) for entry in table)
                yield c_call("ARRAY", f"{name}[{slot}]", *entries)
