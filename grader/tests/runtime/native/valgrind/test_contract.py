# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Which bytes of the pool a call may touch: Valgrind names the line, the native pass alone takes points."""

from __future__ import annotations

from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.case import Case
from grader.core.judgement import SHARED_MEMORY
from grader.core.picture import Drawing
from grader.core.verdict import SourceLine, Tool, Verdict
from grader.judge.case_findings import case_findings
from grader.judge.causes import diagnose
from grader.judge.score import rule_scores
from grader.labs.paged_kv.lab import lab
from grader.report import text
from grader.result.assemble import record
from grader.runtime.native.valgrind.memcheck import MOST_PROCESSES
from grader.tests.support.mistakes import LAST_FIT, MISTAKES, NO_COPY
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    changed,
    findings,
    line_of,
    made,
    memcheck_of,
    natively,
    observed,
    right,
)
from grader.tests.support.raising import Raising
from grader.tests.support.stores import STORE, copying, storing, story

_CREATED = "        sequence->block_table[l1][l2] = allocateBlock(engine);\n    }\n    listAppend"
_RELEASED = "        engine->free_local_blocks++;\n    }\n}\n"
_TOP = POSIX + "#include <stdlib.h>\n#include <string.h>\n"
_SAME = "void *same(void *address);\n__attribute__((noipa)) void *same(void *address) { return address; }\n"


# by what is wrong: the program, the rule, and the first bad operation of each case (where only that has its line)
_BAD: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "memset of a block in create": (
        changed((_CREATED, _CREATED.replace("    }", "        memset(getBlockAddress(engine, sequence->block_table[l1][l2]), 0, 64); /* HERE */\n    }", 1))),
        "no-premature-write",
        (2, 2),
    ),
    "memset of the whole pool in init": (
        changed(("    listInit(&engine->active_seqs);\n    return engine;", "    listInit(&engine->active_seqs);\n    memset(pool_addr, 0, pool_size); /* HERE */\n    return engine;")),
        "no-premature-write",
        (1, 1),
    ),
    "memset of freed blocks in free": (
        changed((_RELEASED, _RELEASED.replace("    }", "        memset(getBlockAddress(engine, block), 0, BLOCK_SIZE); /* HERE */\n    }", 1))),
        "no-premature-write",
        (7, 4),
    ),
    "copy of 128 bytes": (copying("memcpy(to, from, 2 * BLOCK_SIZE); /* HERE */"), "cow", (5, 6)),
    "copy of 60 bytes": (copying("memcpy(to, from, BLOCK_SIZE - 4); /* HERE */"), "cow", (5, 6)),
    "copy of what is used": (copying("memcpy(to, from, (size_t)offset * sizeof(int)); /* HERE */"), "cow", (5, 6)),
    "copy the wrong way round": (copying("memcpy(from, to, BLOCK_SIZE); /* HERE */"), "cow", (5, 6)),
    "store at the wrong offset": (storing("block[(offset + 1) % 16] = kv_data; /* HERE */"), "address", (3,)),
    "store into the shared block": (
        changed(("engine->ref_count[table[l2]] > 1;", "engine->ref_count[table[l2]] > 9;"), (STORE, f"{STORE} /* HERE */")),
        "cow",
        (5, 6),
    ),
    "store into both blocks": (copying("memcpy(to, from, BLOCK_SIZE);\n        from[offset] = kv_data; /* HERE */"), "cow", (5, 6)),
}  # fmt: skip


def graded(source: str, *cases: Case) -> Attempt:
    """All steps, Valgrind too."""
    return attempted(source, *(cases or story()), valgrind=True)


@cache
def bad(mistake: str) -> Attempt:
    """All steps of that program."""
    return graded(_BAD[mistake][0])


@pytest.mark.parametrize("mistake", _BAD)
def test_each_breach_has_its_rule_case_operation_and_line(mistake: str) -> None:
    """In the finding, in the diagnosis, and in both cases although Valgrind prints a line once only."""
    source, rule, operations = _BAD[mistake]
    attempt = bad(mistake)
    found = findings(attempt)
    line = SourceLine(file="llm_memory.c", line=line_of(source))

    assert memcheck_of(attempt).errors == ()
    for case, operation in zip(story(), operations, strict=False):
        (finding,) = (one for one in found if one.case == case.name)
        assert (finding.rule, finding.verdict, finding.operation) == (rule, Verdict.WRONG_ANSWER, operation)
        assert (finding.source[0].file, finding.source[0].line) == (line.file, line.line)
    assert attempt.diagnosed is not None
    assert attempt.diagnosed.first_cause is not None
    assert attempt.diagnosed.first_cause.rule == rule
    assert str(attempt.diagnosed.first_cause.lines[0]) == str(line)


@pytest.mark.parametrize("mistake", _BAD)
def test_a_breach_is_in_the_report_and_costs_nothing_more(mistake: str) -> None:
    """Points are what the same run is worth without what Valgrind saw; the student reads the line."""
    source, attempt = _BAD[mistake][0], bad(mistake)
    native, by_call = case_findings(observed(*attempt.comparisons), lab(), optional=Raising())
    diagnosis = diagnose(native, by_call, lab()).first_cause
    assert diagnosis is not None
    without = rule_scores(native, lab().rubric, attempt.cases, builds=True, diagnosed=diagnosis.rule)
    graded_record = record(attempt, draw=Drawing.NOTHING)

    assert graded_record.rules == tuple(without)
    assert graded_record.failed_stages == ()
    assert f"Your code llm_memory.c:{line_of(source)}" in text.render(graded_record)
    assert f"Your code llm_memory.c:{line_of(source)}" in text.render(graded_record, everything=True)


def taking_back() -> str:
    """A program whose `create_sequence` changes the pool and changes it back."""
    return around(
        "create_sequence",
        "    volatile int *word = engine == NULL ? NULL : engine->pool_base_ptr;\n"
        "    int kept = word == NULL ? 0 : *word;\n"
        "    if (word != NULL) *word = 77; /* HERE */",
        "    if (word != NULL) *word = kept;",
        top=_TOP,
    )


def test_a_store_that_is_taken_back_is_advice() -> None:
    """Constraint 4 forbids it, but what happens inside a call is not compared. Other advice does not replace it."""
    attempt = attempted(taking_back(), hidden(), *story(), valgrind=True, advise=True)

    assert findings(attempt) == []
    assert sum(score.points for score in attempt.scores) == sum(score.max_points for score in attempt.scores)
    given = [one for one in attempt.advice if one.kind == "breach"]
    assert [one.operation for one in given] == [2, 2]
    assert {one.case for one in given} == {"made/first"}
    assert given[0].source[0].line == line_of(taking_back())
    assert hidden().name not in {item.case for item in attempt.advice}


def test_no_advice_comes_of_a_hidden_case() -> None:
    """By its choice of lines a program could tell what the case asks."""
    assert graded(taking_back(), hidden()).advice == ()


def hidden() -> Case:
    """A case in which the store is made that is taken back."""
    return made("secret", "create_sequence 1 21 -> seq", header='pool_blocks = 4; visibility = "hidden"')


def test_a_memory_error_beside_breaches_costs_its_points_in_every_case() -> None:
    """Valgrind prints both once and counts them later; the memory error is not lost in that."""
    bad = "{ volatile int *p = same(malloc(64)); int x = p[16]; /* HERE */ free((void *)p); (void)x; }"
    source = around("create_sequence", f"    {bad}", text=_BAD["memset of a block in create"][0].replace(" /* HERE */", ""), top=_TOP + _SAME)  # fmt: skip
    attempt = graded(source, *story(), *story()[:1])
    errors = [finding for finding in findings(attempt) if finding.verdict is Verdict.MEMORY_ERROR]

    assert all(one.memory_errors for one in attempt.case_findings)
    assert {finding.source[0].line for finding in errors} == {line_of(source)}


def test_a_memory_error_elsewhere_does_not_make_breaches_memory_errors() -> None:
    """Only the case in which it happens pays for it."""
    bad = "if (seq_id == 9) { volatile int *p = same(malloc(64)); int x = p[16]; free((void *)p); (void)x; }"
    source = around("free_sequence", f"    {bad}", text=_BAD["memset of a block in create"][0], top=_TOP + _SAME)
    attempt = graded(source)

    assert [one.memory_errors for one in attempt.case_findings] == [False, True]


def test_another_choice_of_block_is_no_breach() -> None:
    """In the operation that takes another block the contract is that of this block; later there is none."""
    attempt = graded(changed(LAST_FIT), made("grow", "create_sequence 1 16 -> seq; append_kv 1 5 -> 0; append_kv 1 6 -> 0"))  # fmt: skip

    assert memcheck_of(attempt).breaches == ()
    assert memcheck_of(attempt).stores == {}
    assert len(natively(attempt).allowed[0]) == 2


def test_a_contract_ends_with_the_first_physical_difference() -> None:
    """Natively seen; what the program does from there on has other bytes to touch."""
    attempt = graded(changed(MISTAKES["free-count"]))

    assert [len(one) for one in natively(attempt).allowed.values()] == [2, 2]
    assert (memcheck_of(attempt).breaches, memcheck_of(attempt).processes) == ((), 1)


def test_a_missing_copy_has_no_line() -> None:
    """Nobody reads the old block; nothing is invented."""
    attempt = graded(changed(NO_COPY))

    assert {finding.rule for finding in findings(attempt)} == {"cow"}
    assert [finding.source for finding in findings(attempt)] == [(), ()]


def test_a_store_into_another_engines_pool_has_its_line() -> None:
    """All pools but the called engine's are forbidden."""
    source = storing("static int *last; if (last == NULL) last = block; last[offset] = kv_data; /* HERE */")
    operations = (
        "llm_init 128 -> engine; @2 llm_init 128 -> engine; create_sequence 1 5 -> seq; append_kv 1 1 -> 0;"
        "@2 create_sequence 1 7 -> seq; @2 append_kv 1 2 -> 0"
    )
    attempt = graded(source, made("two", operations, header="", rule="isolation"))
    (finding,) = findings(attempt)

    assert (finding.rule, finding.operation) == ("isolation", 6)
    assert finding.source[0].line == line_of(source)


def test_a_breach_beside_another_mistake_is_a_finding_of_its_own() -> None:
    """The cause of the case is another rule's; the line of the store is told all the same."""
    source = changed(LAST_FIT, text=_BAD["memset of a block in create"][0])
    attempt = graded(source)
    (breach, *_) = (finding for finding in findings(attempt) if finding.kind == "breach")

    assert (breach.rule, breach.operation, breach.tool) == ("no-premature-write", 2, Tool.MEMORY_CHECKER)
    assert breach.source[0].line == line_of(source)
    assert {one.kind for one in findings(attempt) if one.source} == {"breach", "choice"}


@pytest.mark.parametrize(
    ("program", "processes"),
    [("", 1), ("memset of a block in create", 1), ("copy of 60 bytes", 2), ("store into the shared block", 2)],
)
def test_a_second_process_runs_only_where_it_can_help(program: str, processes: int) -> None:
    """For a difference in memory that the operation also reads, whose line is unknown."""
    attempt = bad(program) if program else graded(right())

    assert memcheck_of(attempt).processes == processes <= MOST_PROCESSES


def test_an_unset_value_is_told_with_the_line_that_made_it() -> None:
    """Where it comes from costs a second process, so only where there is such an error."""
    bad = "int *p = malloc(64); /* MADE */\n    __asm__ volatile(\"\" : : \"r\"(p) : \"memory\");\n    if (p[3] == 7) return -1; /* HERE */\n    free(p);"  # fmt: skip
    source = around("append_kv", f"    {bad}", top=_TOP)
    attempt = graded(source)
    (finding, *_) = findings(attempt)

    assert finding.source[0].line == line_of(source)
    assert f"llm_memory.c:{line_of(source, '/* MADE */')}" in finding.message
    assert memcheck_of(attempt).processes == 2


def test_pool_differences_say_that_they_are_in_shared_memory() -> None:
    """By this tag, and no other, the grader knows what a breach can explain."""
    attempt = bad("memset of a block in create")
    tagged = {
        (difference.facet, SHARED_MEMORY in difference.tags)
        for comparison in attempt.comparisons
        for deviation in comparison.deviations
        for difference in deviation.judgement.differences
    }

    assert tagged == {("untouched", True)}
