"""The line where a wrong thing was done: by a second build that tells of its blocks and stores."""

from __future__ import annotations

import pytest

from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.programs import changed, first_case, graded_text, made, second_case


def test_a_store_that_is_missing_is_told() -> None:
    """No line is wrong, one is not there."""
    source = changed(("        engine->free_local_blocks--;", "        (void)engine;"))
    record = graded_text(source, first_case(), second_case())

    assert record.first_cause is not None
    assert not record.first_cause.lines
    assert "This call never stores to " in record.first_cause.hint


def test_lines_that_the_file_does_not_have_end_nothing() -> None:
    """`#line` gives any number to what follows."""
    source = changed(("Sequence *getSequenceById(", "#line 100000\nSequence *getSequenceById("))
    source = changed(("getSequence(item)->seq_id == seqId", "getSequence(item)->seq_id == seqId + 1"), text=source)
    record = graded_text(source, made("lookup", "create_sequence 1 5 -> seq; free_sequence 1 -> 0"))

    assert record.first_cause is not None
    assert record.first_cause.rule == "return-value"


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        ("counts_blocks_twice_and_crashes_in_destroy", "engine->free_local_blocks -= 2;"),
        ("append_takes_kv_count_back_and_clears_statistics", ""),
        ("copies_through_a_table_of_zeros", ""),
    ],
)
def test_no_store_that_a_call_makes_is_denied(sample: str, line: str) -> None:
    """Neither one that is not known for a later crash or for many others, nor one into memory that the call made."""
    record = graded("paged_kv", SAMPLES / "wrong_answer" / sample)
    hints = [finding.hint for finding in record.findings]

    assert record.first_cause is not None
    assert [hint for hint in (record.first_cause.hint, *hints) if "never stores" in hint] == []
    if line:
        assert record.first_cause.lines
        assert line in record.submission.source[record.first_cause.lines[0].line - 1]
