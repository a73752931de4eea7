# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Each violation of memory that the handout's rules forbid: reported with rule, case, operation and the student's line.

Every program is the right one with one defect; the cases are ours, as students get them. Writes into the pool have
their tests in test_contract.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest

from grader.assignment import case_files
from grader.attempt import Attempt
from grader.core.case import Case
from grader.core.verdict import Finding, Verdict
from grader.labs.paged_kv.lab import lab
from grader.tests.support.programs import attempted, changed, findings, line_of, natively, right

_HERE, _MADE = "/* HERE */", "/* MADE */"
_TOP = """#pragma GCC diagnostic ignored "-Wuse-after-free"
void *same(void *address);
__attribute__((noipa)) void *same(void *address) { return address; }
int *parked;
"""
"""gcc itself would see some of these; `same` returns its argument, and gcc does not know."""

_L1 = "    sequence->block_table = malloc(sizeof(int *) * L1_PT_SIZE);"
_L2 = "    int *table = malloc(sizeof(int) * L2_PT_SIZE);"
_FILL = "    for (int l2 = 0; l2 < L2_PT_SIZE; l2++)\n    {\n        table[l2] = NOT_MAPPED;"
_VISIT = "        for (int l2 = 0; l2 < L2_PT_SIZE; l2++)\n        {\n            int block = sequence->block_table[l1][l2];\n\n            if (block != NOT_MAPPED)"
_FREE = "    deleteTables(sequence);\n    free(sequence);\n    return RESULT_OK;"
_DESTROY = (
    "        deleteTables(sequence);\n        free(sequence);\n    }\n    free(engine->ref_count);\n    free(engine);\n"
)
_FORKED = "            addTableIfMissing(child, l1);\n"
_STARTED = "    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;\n"
_NO_ROOM = "    if (required > MAX_LOGICAL_BLOCKS || required > engine->free_local_blocks)\n    {\n        return NULL;\n    }\n\n    Sequence *sequence = newSequence(seq_id, initial_kv_len);\n"
_COPIED = "        table[l2] = newBlock;\n"
_NEW_L2 = f"{_L2} {_HERE}"

_COW = "append/first_append_after_fork_copies"  # init, create, fork, append, destroy
_FORK = "fork/two_tables_are_copied"  # init, create, fork, destroy
_HOLDS = "free/child_still_holds"  # init, create, fork, free, free, destroy
_THREE = "destroy/three_live_sequences"  # init, three times create, destroy
_TOO_FEW = "create/one_block_too_few"  # init, create that is refused, create, destroy


@dataclass(frozen=True, slots=True)
class Violation:
    """One defect and what is said of it."""

    source: str
    case: str
    rule: str
    kind: str
    operation: int
    verdict: Verdict = Verdict.MEMORY_ERROR
    native: str | None = _HERE
    """Marker of the line that is named without Valgrind; None where only Valgrind sees it."""
    native_kind: str = ""
    """Where it is another one."""


def program(*replacements: tuple[str, str]) -> str:
    """The right program with these replacements, and what the defects need."""
    return changed(*replacements, text=_TOP + right())


def leak(case: str, operation: int, *replacements: tuple[str, str]) -> Violation:
    """An L2 table that is lost; the line is that of its malloc."""
    return Violation(program((_L2, _NEW_L2), *replacements), case, "leak", "leak", operation, Verdict.MEMORY_LEAK)


_OVER = (_L2, _L2.replace("malloc(sizeof(int) * L2_PT_SIZE)", "same(malloc(sizeof(int) * L2_PT_SIZE))") + f" {_MADE}")

_VIOLATIONS: dict[str, Violation] = {
    "undersized L1 table": Violation(
        program((_L1, f"    sequence->block_table = same(malloc(sizeof(int) * L1_PT_SIZE)); {_HERE}")), _COW, "memory-error", "overrun", 2,
    ),
    "undersized L2 table": Violation(
        program((_L2, f"    int *table = same(malloc(sizeof(int) * (L2_PT_SIZE - 1))); {_HERE}")), _COW, "memory-error", "overrun", 2,
    ),
    "write one past an L2 table": Violation(
        program(_OVER, (_FILL, _FILL.replace("<", "<=") + f" {_HERE}")), _COW, "memory-error", "InvalidWrite", 2, native=_MADE, native_kind="overrun",
    ),
    "read one past an L2 table": Violation(
        program((_VISIT, _VISIT.replace("<", "<=").replace("[l2];\n", f"[l2]; {_HERE}\n").replace("MAPPED)", "MAPPED && l2 < L2_PT_SIZE)"))), _COW, "memory-error", "InvalidRead", 3, native=None,
    ),
    "write after free in destroy": Violation(
        program(("    Sequence *sequence = malloc(sizeof(Sequence));", f"    Sequence *sequence = malloc(sizeof(Sequence)); {_MADE}"), (_DESTROY, _DESTROY.replace("    }", f"        sequence->seq_id = 0; {_HERE}\n    }}"))), _THREE, "memory-error", "InvalidWrite", 5, native=_MADE, native_kind="write-after-free",
    ),
    "read after free in destroy": Violation(
        program((_DESTROY, _DESTROY.replace("    }", f"        if (sequence->kv_count == 12345) {_HERE}\n            return RESULT_ERROR;\n    }}"))), _THREE, "memory-error", "InvalidRead", 5, native=None,
    ),
    "double free of an L2 table": Violation(
        program((_FREE, f"    int *twice = sequence->block_table[0];\n    deleteTables(sequence);\n    free(twice); {_HERE}\n    free(sequence);\n    return RESULT_OK;")), _HOLDS, "memory-error", "double-free", 4,
    ),
    "double free in destroy": Violation(
        program((_DESTROY, _DESTROY.replace("    free(engine->ref_count);", f"    free(engine->ref_count);\n    free(engine->ref_count); {_HERE}"))), _THREE, "memory-error", "double-free", 5,
    ),
    "free(pool)": Violation(
        program((_DESTROY, _DESTROY.replace("    free(engine);", f"    free(engine->pool_base_ptr); {_HERE}\n    free(engine);"))), _THREE, "destroy", "free-pool", 5,
    ),
    "L2 table lost in a rollback": leak(
        _TOO_FEW, 2,
        (_NO_ROOM, "    Sequence *sequence = newSequence(seq_id, initial_kv_len);\n    addTableIfMissing(sequence, 0);\n    if (required > MAX_LOGICAL_BLOCKS || required > engine->free_local_blocks)\n    {\n        free(sequence->block_table);\n        free(sequence);\n        return NULL;\n    }\n"),
    ),
    "L2 table lost in fork": leak(_FORK, 3, (_FORKED, f"{_FORKED}            child->block_table[l1] = NULL;\n{_FORKED}")),
    "L2 table lost in copy-on-write": leak(
        _COW, 4, (_COPIED, _COPIED + "        sequence->block_table[l1] = memcpy(malloc(sizeof(int) * L2_PT_SIZE), table, sizeof(int) * L2_PT_SIZE);\n"),
    ),
    "L2 table lost in free": leak(_HOLDS, 4, (_FREE, _FREE.replace("deleteTables(sequence);", "free(sequence->block_table);"))),
    "L2 table lost in destroy": leak(_THREE, 5, (_DESTROY, _DESTROY.replace("deleteTables(sequence);", "free(sequence->block_table);"))),
    "L2 table parked in a global": leak(
        _HOLDS, 6, (_FREE, "    if (parked == NULL)\n    {\n        parked = sequence->block_table[0];\n        sequence->block_table[0] = NULL;\n    }\n" + _FREE),
    ),
    "uninitialised L2 entry": Violation(
        program((_L2, f"{_L2} {_MADE}"), (_FILL, _FILL.replace("L2_PT_SIZE", "L2_PT_SIZE - 1")), (_VISIT, _VISIT.replace("if (block != NOT_MAPPED)", f"if (block > NOT_MAPPED) {_HERE}"))), _COW, "memory-error", "UninitCondition", 3, native=None,
    ),
    "allocates before its checks and frees again": Violation(
        program((_STARTED, f"    int *plan = same(malloc(64)); {_HERE}\n{_STARTED}"), ("    Sequence *sequence = newSequence(seq_id, initial_kv_len);\n", "    free(plan);\n    Sequence *sequence = newSequence(seq_id, initial_kv_len);\n"), ("required > engine->free_local_blocks)\n    {\n", "required > engine->free_local_blocks)\n    {\n        free(plan);\n")),
        _TOO_FEW, "check-before-allocate", "failing", 2, Verdict.WRONG_ANSWER,
    ),
}  # fmt: skip


@cache
def folder() -> dict[str, Case]:
    """The cases that students are graded with, by name."""
    chosen = lab()
    return {case.name: case for case in case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed)}


@cache
def graded(name: str, *, valgrind: bool) -> Attempt:
    """This program on its case."""
    return attempted(_VIOLATIONS[name].source, folder()[_VIOLATIONS[name].case], valgrind=valgrind)


def told(attempt: Attempt, kind: str, line: int) -> list[Finding]:
    """The findings of that kind with that line of the student's file."""
    return [
        finding
        for finding in findings(attempt)
        if finding.kind == kind and [(one.file, one.line) for one in finding.source[:1]] == [("llm_memory.c", line)]
    ]


@pytest.mark.parametrize("name", _VIOLATIONS)
def test_each_violation_has_its_rule_case_operation_and_line(name: str) -> None:
    """The first finding of its kind says all of it."""
    wanted = _VIOLATIONS[name]
    attempt = graded(name, valgrind=True)
    (finding, *_) = told(attempt, wanted.kind, line_of(wanted.source))

    assert (finding.rule, finding.verdict) == (wanted.rule, wanted.verdict)
    assert (finding.case, finding.operation) == (wanted.case, wanted.operation)


@pytest.mark.parametrize("name", [name for name, one in _VIOLATIONS.items() if one.native is not None])
def test_what_needs_no_valgrind_is_told_without_it(name: str) -> None:
    """Same rule, case and operation; of a write outside, the line is that of the allocation."""
    wanted = _VIOLATIONS[name]
    attempt = graded(name, valgrind=False)
    line = line_of(wanted.source, wanted.native or "")
    (finding, *_) = told(attempt, wanted.native_kind or wanted.kind, line)

    assert natively(attempt).checked is None
    assert min(one.operation or 0 for one in findings(attempt)) == wanted.operation
    assert (finding.rule, finding.verdict) == (wanted.rule, wanted.verdict)
    assert (finding.case, finding.operation) == (wanted.case, wanted.operation)
