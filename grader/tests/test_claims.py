"""No false fact: what the first cause of a labelled sample claims is what was observed of its case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.record import Record
from grader.core.verdict import SourceLine
from grader.labs import LABS
from grader.tests.support.claims import CLAIMS, false_claims
from grader.tests.support.graded import all_graded
from grader.tests.support.handmade import outcome, record_of, steps

_SOURCE = (
    "static int *find(int id)",
    "{",
    "    return 0;",
    "}",
    "int append_kv(LLMEngine *engine, int id, int data)",
    "{",
    "    int *place = find(id);",
    "    (void)engine;",
    "    if (!place) return -1;",
    "",
    "    *place = data;",
    "    return 0;",
    "}",
)

TRUE_HINTS = {
    "lines_exist": "Look at solution.c:11.",
    "returns_where_it_says": "Right before, find returned at solution.c:3.",
    "stores_where_it_says": "This call stores -1 there, at solution.c:11, and nothing else after it.",
    "left_as_it_was": "This call never stores to slot 2 of block 0; it stores to slot 1 of block 0, at solution.c:11.",
    "counts_of_calls": "It goes wrong exactly where it is full: in all 2 such calls of append_kv, in none of 9 others.",
    "counted_lines": "In all 4 calls that went wrong, and in none of the 7 that were right, solution.c:7 ran.",
    "never_found": "fork_sequence and free_sequence refuse in every case.",
    "never_worked": "fork_sequence returns NULL in every case.",
    "values": "It must be 3, and is 4.",
}
FALSE_HINTS = {
    "lines_exist": "Look at solution.c:10.",
    "returns_where_it_says": "Right before, find returned at solution.c:1.",
    "stores_where_it_says": "This call stores -1 there, at solution.c:4, and nothing else after it.",
    "left_as_it_was": "This call never stores to kv_count of sequence 9.",
    "counts_of_calls": "It goes wrong exactly where it is full: in all 5 such calls of append_kv, in none of 9 others.",
    "counted_lines": "In 2 of the 4 calls that went wrong, and in none of the 7 that were right, solution.c:10 ran.",
    "never_found": "append_kv and free_sequence refuse in every case.",
    "never_worked": "append_kv returns -1 in every case.",
    "values": "It must be 5, and is 4.",
    "unwritten": "append_kv is not written yet: its body does nothing but return.",
}


def claiming(hint: str = "", *, sentence: str = "", lines: tuple[SourceLine, ...] = ()) -> Record:
    """A record of two failing cases whose first cause says this; the third append of each went wrong."""
    record = record_of(outcome("append/a"), outcome("append/b"))
    findings = tuple(replace(finding, expected="3", actual="4") for finding in record.findings)
    first = replace(record.causes[0], hint=hint, lines=lines, sentence=sentence or record.causes[0].sentence)
    submission = replace(record.submission, source=_SOURCE)
    return replace(record, causes=(first, *record.causes[1:]), findings=findings, submission=submission)


@pytest.mark.parametrize("claim", TRUE_HINTS)
def test_a_true_claim_is_none_of_the_false_ones(claim: str) -> None:
    """Each function knows its sentence and is content with it."""
    assert false_claims(claiming(TRUE_HINTS[claim])) == []


@pytest.mark.parametrize("claim", FALSE_HINTS)
def test_a_false_claim_is_seen_by_its_function(claim: str) -> None:
    """By the one of its kind."""
    assert any(problem.startswith(f"{claim}: ") for problem in false_claims(claiming(FALSE_HINTS[claim])))


def test_a_false_reply_and_a_line_that_is_empty_are_seen() -> None:
    """They stand in the sentence and in the lines, not in the hint."""
    wrong = record_of(outcome("append/a", steps=steps(5)))
    returned = claiming(sentence="append_kv returned 0, expected 0")

    assert false_claims(returned) == []
    for sentence in ("append_kv returned -1, expected 0", "append_kv returned 0, expected NULL"):
        assert [problem.partition(":")[0] for problem in false_claims(claiming(sentence=sentence))] == ["replies"]
    assert false_claims(claiming(lines=(SourceLine(file="solution.c", line=10),))) != []
    assert false_claims(wrong) == []


def test_every_function_has_a_counterexample() -> None:
    """Otherwise it might find nothing at all."""
    assert {claim.__name__ for claim in CLAIMS} == {*FALSE_HINTS, "replies"}


@pytest.mark.timeout(1800)  # it may be the first to grade the samples
@pytest.mark.parametrize("lab_name", LABS)
def test_no_report_of_a_sample_claims_what_is_not_so(lab_name: str, samples_of: Callable[[str], list[Path]]) -> None:
    """A hostile one may forge the numbers of its lines."""
    folders = [folder for folder in samples_of(lab_name) if not folder.name.startswith("hostile_")]
    records = zip(folders, all_graded(lab_name, folders), strict=True)
    problems = {folder.name: false_claims(record) for folder, record in records}

    assert {name: claims for name, claims in problems.items() if claims} == {}
