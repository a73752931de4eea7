# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Which bytes of the pool a call may touch: Valgrind names the line, the native pass alone takes points."""

from __future__ import annotations

from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.case import Case
from grader.core.picture import Drawing
from grader.core.verdict import SourceLine, Tool, Verdict
from grader.judge.case_findings import case_findings
from grader.judge.causes import diagnose
from grader.judge.score import rule_scores
from grader.labs.paged_kv.lab import lab
from grader.report import text
from grader.result.assemble import record
from grader.tests.support.mistakes import LAST_FIT
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    changed,
    findings,
    line_of,
    made,
    memcheck_of,
    observed,
)
from grader.tests.support.raising import Raising
from grader.tests.support.stores import STORE, copying, storing, story

_CREATED = "        sequence->block_table[l1][l2] = allocateBlock(engine);\n    }\n    listAppend"
_RELEASED = "        engine->free_local_blocks++;\n    }\n}\n"
_TOP = POSIX + "#include <stdlib.h>\n#include <string.h>\n"


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
    assert attempt.first_cause is not None
    assert attempt.first_cause.rule == rule
    assert str(attempt.first_cause.lines[0]) == str(line)


@pytest.mark.parametrize("mistake", _BAD)
def test_a_breach_is_in_the_report_and_costs_nothing_more(mistake: str) -> None:
    """Points are what the same run is worth without what Valgrind saw; the student reads the line."""
    source, attempt = _BAD[mistake][0], bad(mistake)
    native, by_call = case_findings(observed(*attempt.comparisons), lab(), optional=Raising())
    diagnosis = diagnose(native, by_call, lab())[0]
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


def hidden() -> Case:
    """A case in which the store is made that is taken back."""
    return made("secret", "create_sequence 1 21 -> seq", header='pool_blocks = 4; visibility = "hidden"')


def test_a_breach_beside_another_mistake_is_a_finding_of_its_own() -> None:
    """The cause of the case is another rule's; the line of the store is told all the same."""
    source = changed(LAST_FIT, text=_BAD["memset of a block in create"][0])
    attempt = graded(source)
    (breach, *_) = (finding for finding in findings(attempt) if finding.kind == "breach")

    assert (breach.rule, breach.operation, breach.tool) == ("no-premature-write", 2, Tool.MEMORY_CHECKER)
    assert breach.source[0].line == line_of(source)
    assert {one.kind for one in findings(attempt) if one.source} == {"breach", "choice"}
