"""The driver's walk over a student's structures: it believes nothing, and so no wild pointer leads it astray."""

from __future__ import annotations

import pytest

from grader.core.case import Case
from grader.core.verdict import Verdict
from grader.runtime.comparison import End
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    expected_records,
    findings,
    graded_text,
    made,
    played,
    right,
    second_case,
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


def broken(statement: str) -> str:
    """A right program whose `fork_sequence` breaks something before it returns."""
    return around("fork_sequence", after=f"    if (seq_id == 2) {{ {statement} }}", top=_TOP)


def forked(*rest: str, name: str = "forked") -> Case:
    """A fork, then other operations."""
    return made(name, "; ".join(["create_sequence 1 5 -> seq; append_kv 1 7 -> 0; fork_sequence 1 2 -> seq", *rest]))


def assert_walked(source: str, *rest: str) -> None:
    """The record after the fork was written, and none of the other case is missing."""
    case = forked(*rest)
    one, other = played(source, case, second_case())
    assert len(one.steps) > _FORK, one.fault
    assert one.fault is None or one.fault.operation > _FORK
    assert [step.record for step in other.steps] == expected_records(other.case)


@pytest.mark.parametrize("place", _PLACES.values(), ids=_PLACES)
def test_no_pointer_leads_the_walk_astray(place: str) -> None:
    """Every kind of pointer at every place: the walk ends, and the record says what it found."""
    choice = " ".join(
        f"case {number}: {place.format(pointer)} break;" for number, pointer in enumerate(_POINTERS.values())
    )
    # the case says which pointer by the value that it appended first
    which = "((int *)engine->pool_base_ptr)[5]"
    cases = [
        made(f"pointer{number}", f"create_sequence 1 5 -> seq; append_kv 1 {number} -> 0; fork_sequence 1 2 -> seq")
        for number in range(len(_POINTERS))
    ]
    attempt = attempted(broken(f"switch ({which}) {{ {choice} }}"), *cases)

    assert attempt.replayed is not None
    lost = [
        name
        for name, one in zip(_POINTERS, attempt.replayed.played, strict=True)
        if len(one.steps) <= _FORK or (one.fault is not None and one.fault.operation <= _FORK)
    ]
    assert lost == []
    assert sum(attempt.spent.values()) < 20


@pytest.mark.parametrize("poke", ["set_kv_count 2 5", "move_l2 2 0 5", "unmap 2 0"])
@pytest.mark.parametrize("place", ["next of the head", "next of the child", "block_table", "ref_count", "an L2 table"])
def test_no_pointer_leads_a_poke_astray(place: str, poke: str) -> None:
    """A poke that meets a broken structure does not fit; it never crashes in the grader's own code."""
    which = "((int *)engine->pool_base_ptr)[5]"
    statement = _PLACES[place].replace("[3]", "[0]")
    choice = " ".join(
        f"case {number}: {statement.format(pointer)} break;" for number, pointer in enumerate(_POINTERS.values())
    )
    cases = [
        made(
            f"poke{number}", f"create_sequence 1 5 -> seq; append_kv 1 {number} -> 0; fork_sequence 1 2 -> seq; {poke}"
        )
        for number in range(len(_POINTERS))
    ]
    attempt = attempted(broken(f"switch ({which}) {{ {choice} }}"), *cases)

    assert attempt.replayed is not None
    astray = [
        name
        for name, one in zip(_POINTERS, attempt.replayed.played, strict=True)
        if one.fault is not None and one.fault.operation <= _FORK + 1
    ]
    assert astray == []


@pytest.mark.parametrize(
    "statement",
    [
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
    ],
)
def test_cycles_and_shared_tables_end(statement: str) -> None:
    """A ring that does not come back to its head, tables that are met twice: all are walked once."""
    assert_walked(broken(statement))


@pytest.mark.parametrize(
    "statement",
    [
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
    ],
)
def test_nonsense_numbers_and_freed_parts_are_judged(statement: str) -> None:
    """Whatever stands in the structures: compared, diagnosed and scored without an exception."""
    case = forked("append_kv 2 9 -> 0", "free_sequence 1 -> 0")
    record = graded_text(broken(statement), case, second_case(), valgrind=True)

    assert record.score is not None
    assert 0 < record.score < record.max_score
    assert record.diagnosis is not None


def test_a_broken_structure_ends_only_its_case() -> None:
    """From there nobody knows what comes next; the case says so, the others go on."""
    attempt = attempted(broken("engine->ref_count = NULL;"), forked("append_kv 2 9 -> 0"), second_case())

    assert attempt.comparisons[0].end in (End.UNREADABLE, End.CRASH)
    assert attempt.comparisons[1].end is End.REACHED
    assert {finding.case for finding in findings(attempt)} == {"made/forked"}


@pytest.mark.parametrize("size", ["sizeof(int *) * 8", "sizeof(int *) * 15", "0"])
def test_too_small_tables_are_one_finding_and_no_ruined_case(size: str) -> None:
    """What runs over the end of an allocation is read all the same, and said once."""
    source = right().replace(
        "sequence->block_table = malloc(sizeof(int *) * L1_PT_SIZE);", f"sequence->block_table = malloc({size});"
    )
    assert source != right()
    source = source.replace(
        "l1 < L1_PT_SIZE; l1++)\n    {\n        sequence->block_table[l1] = NULL;",
        "l1 < 8; l1++)\n    {\n        sequence->block_table[l1] = NULL;",
    )
    record = graded_text(source, forked("append_kv 2 9 -> 0"), second_case())

    assert record.verdict in (Verdict.MEMORY_ERROR, Verdict.WRONG_ANSWER, Verdict.COMPILE_ERROR)
    assert record.score is not None


@pytest.mark.parametrize(
    "reply",
    ["(void *)pool_addr", "(void *)8", "(void *)small", "same(malloc(8))", "gone(64)", "(void *)((char *)result + 8)"],
)
def test_an_engine_that_is_none(reply: str) -> None:
    """`llm_init` may return anything; the calls that follow get it, the walk does not follow it."""
    source = around("llm_init", after=f"    if (pool_size == 256) return {reply};", top=_TOP)
    attempt = attempted(source, forked(), made("two", "create_sequence 1 5 -> seq", header="pool_blocks = 2"))

    assert attempt.replayed is not None
    one, other = attempt.replayed.played
    assert len(one.steps) >= 1
    assert [step.record for step in other.steps] == expected_records(other.case)
    assert attempt.diagnosed is not None
    assert attempt.diagnosed.verdict is not Verdict.ACCEPTED
