"""The driver's walk over a student's structures: it believes nothing, and so no wild pointer leads it astray."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.case import Case
from grader.runtime.native.native_played import NativePlayed
from grader.runtime.protocol import End
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    expected_records,
    findings,
    made,
    played,
    second_case,
    seconds_here,
)

_FORK = 3
"""The operation after which the structures are broken."""

_TOP = POSIX + (
    "#include <limits.h>\n#include <stdint.h>\n#include <stdlib.h>\n"
    "static int small[2];\n"
    "static void *gone(size_t size) { void *volatile block = malloc(size); free(block); return block; }\n"
    "void *same(void *address);\n"
    "__attribute__((noipa)) void *same(void *address) { return address; }\n"
    "void *(*used)(size_t) = gone;\nint *also_used = small;\n"
)

_POINTERS = {
    "NULL": "NULL",
    "eight": "(void *)8",
    "twenty-four": "(void *)24",
    "all ones": "(void *)UINTPTR_MAX",
    "almost all ones": "(void *)(UINTPTR_MAX - 31)",
    "far": "(void *)0x123456789000",
    "not canonical": "(void *)0x8000000000000000",
    "odd": "(void *)((char *)result + 1)",
    "the pool": "engine->pool_base_ptr",
    "the stack": "same(&engine)",
    "a static": "(void *)small",
    "the code": "(void *)(uintptr_t)&llm_init",
    "freed": "gone(256)",
    "small": "same(malloc(4))",
    "nothing": "same(malloc(0))",
    "the engine": "(void *)engine",
    "the end of a block": "(void *)((char *)malloc(64) + 64)",
}

_PLACES = {
    "next of the head": "engine->active_seqs.next = {};",
    "prev of the head": "engine->active_seqs.prev = {};",
    "next of the child": "result->node.next = {};",
    "prev of the child": "result->node.prev = {};",
    "block_table": "result->block_table = {};",
    "an L2 table": "result->block_table[3] = {};",
    "ref_count": "engine->ref_count = {};",
    "pool_base_ptr": "engine->pool_base_ptr = {};",
    "the reply": "return {};",
}


def broken(statements: Iterable[str]) -> str:
    """A right program whose `fork_sequence` breaks something before it returns: what, says the value appended first."""
    choice = " ".join(f"case {number}: {statement} break;" for number, statement in enumerate(statements))
    which = "((int *)engine->pool_base_ptr)[5]"
    return around("fork_sequence", after=f"    if (seq_id == 2) switch ({which}) {{ {choice} }}", top=_TOP)


def forked(number: int, *rest: str, name: str = "broken") -> Case:
    """A fork in which the statement of this number breaks something, then other operations."""
    start = f"create_sequence 1 5 -> seq; append_kv 1 {number} -> 0; fork_sequence 1 2 -> seq"
    return made(f"{name}{number}", "; ".join([start, *rest]))


def everywhere(place: str) -> list[str]:
    """Each kind of pointer at this place."""
    return [place.format(pointer) for pointer in _POINTERS.values()]


@cache
def walked() -> list[NativePlayed]:
    """What was reported of each kind of pointer at each place."""
    statements = [statement for place in _PLACES.values() for statement in everywhere(place)]
    attempt = attempted(broken(statements), *(forked(number) for number in range(len(statements))))
    assert sum(attempt.spent.values()) < seconds_here(20)
    return [one for one in attempt.replayed.played if isinstance(one, NativePlayed)]


@pytest.mark.parametrize("place", _PLACES)
def test_no_pointer_leads_the_walk_astray(place: str) -> None:
    """Every kind of pointer at every place: the walk ends, and the record says what it found."""
    start = list(_PLACES).index(place) * len(_POINTERS)
    astray = [
        name
        for name, run in zip(_POINTERS, walked()[start:], strict=False)
        if len(run.steps) <= _FORK or (run.fault is not None and run.fault.operation <= _FORK)
    ]

    assert astray == []


_CYCLES = (
    "result->node.next = &result->node;",
    "result->node.next = result->node.prev;",
    "result->node.next = engine->active_seqs.next;",
    "result->node.prev = &result->node;",
    "engine->active_seqs.next = engine->active_seqs.prev = &engine->active_seqs;",
    "result->block_table[1] = result->block_table[0];",
    "result->block_table[0] = getSequenceById(engine, 1)->block_table[0];",
    "result->block_table = getSequenceById(engine, 1)->block_table;",
    "result->block_table[0] = engine->ref_count;",
    "result->block_table = (int **)(void *)result;",
)


def test_cycles_and_shared_tables_end() -> None:
    """A ring that does not come back to its head, tables that are met twice: all are walked once.

    The record after the fork is written, and none of the other case is missing.
    """
    *cycles, other = played(broken(_CYCLES), *(forked(number) for number in range(len(_CYCLES))), second_case())

    for statement, run in zip(_CYCLES, cycles, strict=True):
        assert len(run.steps) > _FORK, (statement, run.fault)
        assert run.fault is None or run.fault.operation > _FORK, statement
    assert [step.record for step in other.steps] == expected_records(other.case)


_NONSENSE = (
    "result->kv_count = INT_MIN;",
    "result->kv_count = INT_MAX;",
    "result->seq_id = 1;",
    "result->block_table[0][0] = INT_MAX;",
    "result->block_table[0][0] = -2;",
    "engine->total_local_blocks = INT_MAX;",
    "engine->free_local_blocks = INT_MIN;",
    "engine->ref_count[0] = INT_MIN;",
    "engine->ref_count[0] = 0;",
    "memset(engine, 0xFF, sizeof *engine);",
    "memset(result, 0, sizeof *result);",
    "memset(result, 0xA5, sizeof *result);",
    "free(engine->ref_count);",
    "free(result);",
    "free(result->block_table);",
    "free(engine);",
    "engine->ref_count = NULL;",
)


@cache
def nonsense() -> Attempt:
    """The attempt of all of them, and of a case in which nothing is broken."""
    cases = [forked(number, "append_kv 2 9 -> 0", "free_sequence 1 -> 0") for number in range(len(_NONSENSE))]
    return attempted(broken(_NONSENSE), *cases, second_case(), valgrind=True)


def test_a_broken_structure_ends_only_its_case() -> None:
    """From there nobody knows what comes next; the case says so, the others go on."""
    broken_case, right_case = nonsense().comparisons[_NONSENSE.index("engine->ref_count = NULL;") :]

    assert broken_case.end in (End.UNREADABLE, End.ENDED)
    assert right_case.end is End.REACHED
    assert {finding.case for finding in findings(nonsense())} == {case.name for case in nonsense().cases[:-1]}
