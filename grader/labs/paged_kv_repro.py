"""A case of `paged_kv` as a C program: the calls one after the other, and the whole state after the last of them.

Before the last operation only replies are checked: the program ends with a case's first bad operation, so what went
before was right. What must be in the pool is written down call by call, beside the calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from grader.casefile import Case
from grader.reproduce import Run, c_call, c_comment, c_string, fold, render
from reference.operation import Operation, Reply
from reference.paged_kv import Engine, PagedKV
from reference.paged_kv.sequence import UNMAPPED, Place, Sequence
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE

__all__ = ["COMMAND", "reproduce"]

COMMAND = "gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb llm_memory.c repro.c -o repro"
"""The handout's link command (Compilation Standard)."""

_TEMPLATE = Path(__file__).with_name("paged_kv_repro.c.jinja")
_GUARD_WORDS = 16
_USED = re.compile(r"\b(CHECK|EQUAL|SEQUENCE|ARRAY|LIST|NULLS|POOL|sequence)\(")

_CONTRACT = "Constraint 2/contract"
_ISOLATION = "Part 2.3/global-state"
_DEMANDS = {
    ("llm_init", "free"): "Task 1/free-blocks",
    ("llm_init", "ref_count"): "Task 1/ref-count-zero",
    ("llm_init", "list"): "Task 1/empty-list",
    ("create_sequence", "free"): "Constraint 5/decrement",
    ("create_sequence", "ref_count"): "Task 2/map-blocks",
    ("create_sequence", "list"): "Task 2/tail",
    ("create_sequence", "fields"): "Task 2/kv-count",
    ("create_sequence", "tables"): "Task 2/map-blocks",
    ("free_sequence", "ref_count"): "Task 2/free-decrement",
    ("free_sequence", "list"): "Task 2/free-detach",
    ("fork_sequence", "free"): "Part 2.3/shared-prefix",
    ("fork_sequence", "ref_count"): "Task 3/increment",
    ("fork_sequence", "list"): "Task 3/tail",
    ("fork_sequence", "fields"): "Task 3/kv-count",
    ("fork_sequence", "tables"): "Task 3/copy-tables",
    ("append_kv", "fields"): "Task 4/count-returns",
    ("append_kv", "pool"): "Task 4/store",
    ("in-place", "free"): "Task 4/exclusive",
    ("in-place", "ref_count"): "Task 4/exclusive",
    ("in-place", "tables"): "Task 4/exclusive",
    ("new-page", "free"): "Constraint 5/decrement",
    ("new-page", "ref_count"): "Task 4/new-page",
    ("new-page", "tables"): "Task 4/new-page",
    ("copy-on-write", "free"): "Task 4/cow-counts",
    ("copy-on-write", "ref_count"): "Task 4/cow-counts",
    ("copy-on-write", "tables"): "Task 4/cow-remap",
    ("copy-on-write", "pool"): "Task 4/cow-copy",
}
"""Which sentence of the handout a call (or the way an append takes) has for a part of the state."""

_ALWAYS = {
    "free": "Constraint 5/increment",
    "ref_count": "Part 2.3/ref-count",
    "list": "Part 2.5/intrusive-list",
    "fields": "Part 2.2/logical-index",
    "tables": "Part 2.2/table-walk",
    "pool": "Constraint 4/no-write",
}
"""The sentence where the call has none of its own."""


class Pool(NamedTuple):
    """A pool of the program: the names of what is in it and of what must be in it, and its size."""

    memory: str
    want: str
    pool_bytes: int

    @property
    def blocks(self) -> int:
        """Physical blocks, rounded down."""
        return self.pool_bytes // BLOCK_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One operation, with what the reference made of it."""

    number: int
    operation: Operation
    reply: Reply
    pool: Pool | None
    declares: bool = False
    """Is it the first engine under this name?"""
    stored: tuple[int, int] | None = None
    """Block and slot of the KV record."""
    copied: tuple[int, int] | None = None
    """Old and new block of a copy-on-write."""
    unmapped: tuple[int, bool] | None = None
    """The block that a poke gives back, and whether that was its last reference."""

    @property
    def text(self) -> str:
        """The operation as the case file writes it."""
        return f"{self.operation} -> {self.reply.text}" if self.reply.text else str(self.operation)

    @property
    def shape(self) -> tuple[object, ...]:
        """Operations of one shape may share a loop: neighbours that come from one `repeat` line."""
        operation = self.operation
        if operation.name in ("llm_init", "llm_destroy") or self.copied or self.unmapped:
            return (self.number,)
        return (operation.line, operation.name, operation.target, self.reply.text, self.reply.clause)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a loop may count: the arguments, then where the KV record goes."""
        arguments = tuple(argument for argument in self.operation.arguments if isinstance(argument, int))
        return arguments + (self.stored or ())


def reproduce(case: Case, operation: int, *, clauses: Mapping[str, str]) -> str:
    """The case up to and with that operation (counted from 0) as a C program for the handout's link command."""
    story = _Story(case, operation, clauses)
    body = [*story.calls(), *story.state(), *story.closing()]
    text = "\n".join(body)
    pools = story.pools
    most = max([1, *(pool.blocks for pool in pools)])
    tail = max([0, *(pool.pool_bytes - most * BLOCK_SIZE for pool in pools)])
    return render(
        _TEMPLATE,
        title=case.title,
        name=case.name,
        line=story.last.operation.line,
        last=story.last.text,
        clauses=[story.cite(clause) for clause in case.handout],
        command=COMMAND,
        loops="for (i = " in text,
        memory=story.watches_memory,
        pools=pools,
        guard=_GUARD_WORDS + case.trace.settings.get("pool_align", 0) % BLOCK_SIZE // KV_SIZE,
        blocks=most,
        behind=_GUARD_WORDS - -tail // KV_SIZE,
        used=set(_USED.findall(text)),
        body="\n".join(body).split("\n"),
    )


class _Story:
    """A case, played to its cut, and the lines of C that tell it."""

    def __init__(self, case: Case, operation: int, clauses: Mapping[str, str]) -> None:
        self.clauses = clauses
        self.model = PagedKV(case.trace)
        self.pools: list[Pool] = []
        self.current: dict[int, Pool] = {}
        """The pool that each engine number has now."""
        self.named: set[int] = set()
        """Engine numbers whose variable is declared."""
        told = case.trace.operations[: operation + 1]
        self.played = [self._play(number, one) for number, one in enumerate(told)]
        self.last = self.played[-1]
        self.said = ""
        """The sentence of the handout that stands above the lines written last."""
        self.complete = len(told) == len(case.trace.operations)

    @property
    def watches_memory(self) -> bool:
        """Does anything depend on what is allocated and freed?"""
        returns = any(
            one.operation.name in ("free_sequence", "llm_destroy") and not one.reply.refused for one in self.played
        )
        return self.complete or self.last.reply.refused or returns

    def cite(self, clause: str) -> str:
        """A sentence of the handout, with its place."""
        return f"{clause.partition('/')[0]}: {self.clauses[clause]}"

    def calls(self) -> Iterator[str]:
        """All operations; neighbours from one line of the case file as a loop, but for the last one."""
        *before, last = self.played
        for run in (*_runs(before), *_runs([last])):
            first = run.items[0]
            yield ""
            if first.operation.comment:
                yield f"/* {c_comment(first.operation.comment)} */"
            yield self._step(run)
            if first is last and last.reply.refused:
                yield "const int before = allocated;"
            yield from _looped(run, list(_call(first, run.texts())))

    def state(self) -> Iterator[str]:
        """What must be true after the last operation, part by part, each with the handout's sentence."""
        if self.last.reply.refused:
            yield from self._part(_CONTRACT, ["EQUAL(allocated - before, 0);"])
        for number in self.model.slots:
            engine = self.model.engines.get(number)
            own = number == self.last.operation.target
            if engine is not None:
                for facet, lines in _facets(engine, number, self.current[number], self.last, own=own):
                    yield from self._part(self._demand(facet, own=own), lines)
            if number in self.current:
                pool = self.current[number]
                line = f"POOL({pool.memory}, {pool.want}, {pool.blocks});"
                yield from self._part(self._demand("pool", own=own), [line])

    def closing(self) -> Iterator[str]:
        """Nothing may be left; where the case is cut short, its engines go first, so that Valgrind can say so."""
        if self.complete:
            lines = ["const int lost = allocated > freed ? allocated - freed : 0;", "EQUAL(lost, 0);"]
            yield from self._part("Compilation/no-leak", lines)
        elif self.model.engines:
            yield ""
            yield "/* the case goes on; here its end, for Valgrind's sake */"
            yield f'step("llm_destroy",\n     {c_string(self.cite("Task 5/engine-memory"), column=5)});'
            yield from (f"llm_destroy({_engine_name(number)});" for number in self.model.engines)

    def _play(self, number: int, operation: Operation) -> Played:
        name, target = operation.name, operation.target
        unmapped = self._unmapped(operation) if name == "unmap" else None
        reply = self.model.apply(operation)
        if name == "llm_init" and None not in operation.arguments:
            assert target is not None
            suffix = str(len(self.pools) + 1) if self.pools else ""
            self.current[target] = Pool(f"memory{suffix}", f"want{suffix}", _integer(operation.arguments[0]))
            self.pools.append(self.current[target])
        declares = name == "llm_init" and not reply.refused and target not in self.named
        if declares and target is not None:
            self.named.add(target)
        effect = self.model.effect
        stored = None if effect.stored is None else divmod(effect.stored // KV_SIZE, KV_PER_BLOCK)
        return Played(
            number=number,
            operation=operation,
            reply=reply,
            pool=self.current.get(target or 0),
            declares=declares,
            stored=stored,
            copied=effect.copied,
            unmapped=unmapped,
        )

    def _unmapped(self, operation: Operation) -> tuple[int, bool]:
        seq_id, logical = map(_integer, operation.arguments)
        engine = self.model.engines[operation.target or 0]
        block = engine.active_seqs[seq_id].block_at(Place.of(logical * KV_PER_BLOCK))
        return block, engine.ref_count[block] == 1

    def _step(self, run: Run[Played]) -> str:
        first, last = run.items[0], run.items[-1]
        line = first.operation.line
        text = first.text + (f" and so on to {last.operation}" if run.folded else "")
        place = f" (line {line} of the case)" if line else ""
        why = self.cite(first.reply.clause) if first.reply.clause else "(changed by hand, no call)"
        return f"step({c_string(text + place, column=5)},\n     {c_string(why, column=5)});"

    def _demand(self, facet: str, *, own: bool) -> str:
        if self.last.reply.refused:
            return _CONTRACT
        if not own:
            return _ISOLATION
        if facet in self.clauses:
            return facet
        situations = (*sorted(self.last.reply.circumstances), self.last.operation.name)
        return next((_DEMANDS[one, facet] for one in situations if (one, facet) in _DEMANDS), _ALWAYS[facet])

    def _part(self, clause: str, lines: Iterable[str]) -> Iterator[str]:
        if clause != self.said:
            yield ""
            yield f"handout = {c_string(self.cite(clause), column=10)};"
        self.said = clause
        yield from lines


def _runs(played: list[Played]) -> Iterator[Run[Played]]:
    return fold(played, lambda one: one.shape, lambda one: one.numbers)


def _integer(argument: object) -> int:
    assert isinstance(argument, int)
    return argument


def _engine_name(number: int | None) -> str:
    return "NULL" if number is None else "engine" if number == 1 else f"engine{number}"


def _looped(run: Run[object], lines: list[str]) -> Iterator[str]:
    """The lines, in the run's loop where it is one."""
    if not run.folded:
        yield from lines
        return
    braces = len(lines) > 1
    yield run.loop + (" {" if braces else "")
    yield from ("    " + line.replace("\n", "\n    ") for line in lines)
    if braces:
        yield "}"


def _call(one: Played, numbers: list[str]) -> Iterator[str]:
    """One operation in C; `numbers` are its arguments, and block and slot of the KV record."""
    operation, reply = one.operation, one.reply
    engine = _engine_name(operation.target)
    arguments = numbers[: len(operation.arguments)]
    call = f"{operation.name}({', '.join([engine, *arguments])})"
    if operation.name == "llm_init":
        yield from _init(one)
    elif operation.name in _POKES:
        yield from _POKES[operation.name](one, f"sequence({engine}, {arguments[0]})", arguments[1:])
    elif reply.text == "seq":
        yield f"SEQUENCE({call}, {arguments[-1 if operation.name == 'fork_sequence' else 0]});"
    elif reply.text == "NULL":
        yield f"CHECK({call} == NULL);"
    else:
        yield f"EQUAL({call}, {reply.text});"
    if one.stored is not None and one.pool is not None:
        want = f"{one.pool.want}.block"
        if one.copied is not None:
            old, new = one.copied
            yield f"memcpy({want}[{new}], {want}[{old}], BLOCK_SIZE);"
        block, slot = numbers[-2:]
        yield f"{want}[{block}][{slot}] = {arguments[1]};"


def _init(one: Played) -> Iterator[str]:
    engine = _engine_name(one.operation.target)
    *null, size = one.operation.arguments
    pool = "NULL" if null or one.pool is None else f"{one.pool.memory}.block"
    if one.reply.refused:
        yield f"CHECK(llm_init({pool}, {size}) == NULL);"
    else:
        yield f"{'LLMEngine *' if one.declares else ''}{engine} = llm_init({pool}, {size});"
        yield f"CHECK({engine} != NULL);"


def _move_l2(_: Played, sequence: str, arguments: list[str]) -> Iterator[str]:
    source, target = arguments
    yield f"{sequence}->block_table[{target}] = {sequence}->block_table[{source}];"
    yield f"{sequence}->block_table[{source}] = NULL;"


def _unmap(one: Played, sequence: str, arguments: list[str]) -> Iterator[str]:
    assert one.unmapped is not None
    block, last = one.unmapped
    place = Place.of(int(arguments[0]) * KV_PER_BLOCK)
    engine = _engine_name(one.operation.target)
    yield f"{sequence}->block_table[{place.l1}][{place.l2}] = -1;"
    yield f"{engine}->ref_count[{block}]--;"
    if last:
        yield f"{engine}->free_local_blocks++;"


def _set_kv_count(_: Played, sequence: str, arguments: list[str]) -> Iterator[str]:
    yield f"{sequence}->kv_count = {arguments[0]};"


_POKES = {"move_l2": _move_l2, "unmap": _unmap, "set_kv_count": _set_kv_count}


def _facets(
    engine: Engine, number: int, pool: Pool, last: Played, *, own: bool
) -> Iterator[tuple[str, list[str]]]:
    """The parts of an engine's state, each with the lines that check it."""
    name = _engine_name(number)
    total = [f"EQUAL({name}->total_local_blocks, {engine.total_local_blocks});"]
    base = [f"CHECK({name}->pool_base_ptr == {pool.memory}.block);"]
    free = [f"EQUAL({name}->free_local_blocks, {engine.free_local_blocks});"]
    if last.operation.name == "llm_init" and own:
        yield "Task 1/total-blocks", total
        yield "Task 1/pool-pointer", base
        yield "free", free
    else:
        yield "free", total + base + free
    yield "ref_count", [c_call("ARRAY", f"{name}->ref_count", *map(str, engine.ref_count))]
    yield "list", list(_list(name, engine))
    if engine.active_seqs:
        if last.operation.name == "fork_sequence" and own and not last.reply.refused:
            yield "Task 3/own-tables", list(_own_tables(name, engine, *map(_integer, last.operation.arguments)))
        yield "fields", list(_fields(name, engine))
        yield "tables", list(_tables(name, engine))


def _list(name: str, engine: Engine) -> Iterator[str]:
    if engine.active_seqs:
        yield c_call("LIST", name, *map(str, engine.active_seqs))
    else:
        yield from (f"CHECK({name}->active_seqs.{link} == &{name}->active_seqs);" for link in ("next", "prev"))


def _own_tables(name: str, engine: Engine, parent: int, child: int) -> Iterator[str]:
    one, other = f"sequence({name}, {child})->block_table", f"sequence({name}, {parent})->block_table"
    yield f"CHECK({one} != {other});"
    for slot, table in enumerate(engine.active_seqs[child].block_table):
        if table is not None:
            yield f"CHECK({one}[{slot}] != {other}[{slot}]);"


def _fields(name: str, engine: Engine) -> Iterator[str]:
    for run in fold(list(engine.active_seqs.values()), lambda _: (), lambda one: (one.seq_id, one.kv_count)):
        seq_id, kv_count = run.texts()
        yield from _looped(run, [f"EQUAL(sequence({name}, {seq_id})->kv_count, {kv_count});"])


def _tables(name: str, engine: Engine) -> Iterator[str]:
    for run in fold(list(engine.active_seqs.values()), _shape, lambda one: (one.seq_id, *one.mapped_blocks())):
        seq_id, *blocks = run.texts()
        yield from _looped(run, list(_table(f"sequence({name}, {seq_id})->block_table", run.items[0], blocks)))


def _shape(sequence: Sequence) -> tuple[object, ...]:
    """Which L1 slots have a table, and which entries of those are mapped."""
    return tuple(
        None if table is None else tuple(entry != UNMAPPED for entry in table) for table in sequence.block_table
    )


def _table(name: str, sequence: Sequence, blocks: Iterable[str]) -> Iterator[str]:
    """Every L1 slot: its 16 entries, or NULL; neighbouring NULLs in one line."""
    numbers = iter(blocks)
    for empty, slots in groupby(enumerate(sequence.block_table), lambda one: one[1] is None):
        tables = list(slots)
        if empty:
            yield f"NULLS({name}, {tables[0][0]}, {tables[-1][0]});"
        for slot, table in tables:
            if table is not None:
                entries = ["-1" if entry == UNMAPPED else next(numbers) for entry in table]
                yield c_call("ARRAY", f"{name}[{slot}]", *entries)
