"""A case of `paged_kv` as a C program: the calls in order, then checks of the whole state after the last one.

Before the last operation the program checks only replies: it ends with the case's first bad operation, so all
operations before it were right. After each call that stores, lines update the expected content of the pool.

The program detects memory errors with its own malloc (heap.c.jinja). A checked pattern around allocations would be
shorter, but detects only writes, and only after the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from grader.core.case import Case
from grader.labs.paged_kv.reproduce.state import state
from grader.labs.paged_kv.reproduce.story import Played, Story, engine_name
from grader.runtime.native.c_program import FoldedRun, c_comment, c_string, fold, render
from reference.paged_kv.constants import BLOCK_SIZE, KV_SIZE, L2_PT_SIZE
from reference.paged_kv.pool import GUARD_WORDS

COMMAND = "gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb llm_memory.c repro.c -o repro"
"""The handout's link command (Compilation Standard)."""

_TEMPLATE = Path(__file__).with_name("program.c.jinja")
_HELPERS = re.compile(r"\b(CHECK|EQUAL|SEQUENCE|ARRAY|LIST|NULLS|NOTHING_ALLOCATED|POOL|sequence)\(")


def reproduce(case: Case, operation: int, *, clauses: Mapping[str, str]) -> str:
    """Return a program of the case up to and including that operation (counted from 0).

    It is built with the handout's link command.
    """
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
        command=COMMAND,
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

    def _step(self, run: FoldedRun[Played]) -> Iterator[str]:
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


def _runs(played: list[Played]) -> Iterator[FoldedRun[Played]]:
    return fold(played, lambda step: step.shape, lambda step: step.numbers)


def _call(step: Played, numbers: list[str]) -> Iterator[str]:
    """Yield one operation in C; `numbers` are its arguments, then block and slot of the KV record."""
    name, reply, engine = step.operation.name, step.reply.text, engine_name(step.operation.target)
    call = f"{name}({', '.join([engine, *numbers[: len(step.operation.arguments)]])})"
    if name == "llm_init":
        yield from _init(step, engine)
    elif name in _POKES:
        yield from _POKES[name](step, engine, numbers)
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


def _init(step: Played, engine: str) -> Iterator[str]:
    *null, size = step.operation.arguments
    pool = "NULL" if null or step.pool is None else f"{step.pool.memory}.block"
    if step.reply.refused:
        yield f"CHECK(llm_init({pool}, {size}) == NULL);"
    else:
        yield f"{'LLMEngine *' if step.declares else ''}{engine} = llm_init({pool}, {size});"
        yield f"CHECK({engine} != NULL);"


def _move_l2(_: Played, engine: str, numbers: list[str]) -> Iterator[str]:
    seq_id, source, target = numbers
    table = f"sequence({engine}, {seq_id})->block_table"
    yield f"{table}[{target}] = {table}[{source}];"
    yield f"{table}[{source}] = NULL;"


def _unmap(step: Played, engine: str, numbers: list[str]) -> Iterator[str]:
    assert step.unmapped is not None
    seq_id, logical = numbers
    block, last = step.unmapped
    l1, l2 = divmod(int(logical), L2_PT_SIZE)
    yield f"sequence({engine}, {seq_id})->block_table[{l1}][{l2}] = -1;"
    yield f"{engine}->ref_count[{block}]--;"
    if last:
        yield f"{engine}->free_local_blocks++;"


def _set_kv_count(_: Played, engine: str, numbers: list[str]) -> Iterator[str]:
    seq_id, kv_count = numbers
    yield f"sequence({engine}, {seq_id})->kv_count = {kv_count};"


_POKES = {"move_l2": _move_l2, "unmap": _unmap, "set_kv_count": _set_kv_count}
