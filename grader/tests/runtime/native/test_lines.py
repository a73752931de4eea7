"""The line where a wrong thing was done: by a second build that tells of its blocks and stores."""

from __future__ import annotations

import pytest

from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.programs import changed, first_case, graded_text, line_of, made, second_case


def test_a_store_that_is_missing_is_told() -> None:
    """No line is wrong, one is not there."""
    source = changed(("        engine->free_local_blocks--;", "        (void)engine;"))
    record = graded_text(source, first_case(), second_case())

    assert record.first_cause is not None
    assert not record.first_cause.lines
    assert "This call never stores to " in record.first_cause.hint


def test_a_use_of_freed_memory_has_its_line_and_that_of_the_free() -> None:
    """Natively too, where it ends in a crash elsewhere."""
    source = changed(
        (
            "    visitBlocks(engine, sequence, releaseVisitor, NULL);\n    deleteTables(sequence);\n",
            "    deleteTables(sequence);\n    visitBlocks(engine, sequence, releaseVisitor, NULL);\n",
        ),
        ("        if (sequence->block_table[l1] == NULL)", "        if (sequence->block_table[l1] == NULL) /* HERE */"),
    )
    record = graded_text(source, first_case(), made("freed", "create_sequence 1 5 -> seq; free_sequence 1 -> 0"))

    assert record.first_cause is not None
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line == line_of(source)
    assert "it uses memory that was freed at llm_memory.c:" in record.first_cause.hint


def test_the_function_that_decided_a_return_is_named() -> None:
    """A return of the call itself says little where a helper found nothing."""
    source = changed(("getSequence(item)->seq_id == seqId", "getSequence(item)->seq_id == seqId + 1"))
    record = graded_text(source, made("lookup", "create_sequence 1 5 -> seq; free_sequence 1 -> 0"))

    assert record.first_cause is not None
    assert "getSequenceById returned at llm_memory.c:" in record.first_cause.hint


def test_a_search_that_finds_nothing_is_no_wrong_number_of_blocks() -> None:
    """The call stores the -1 that it got; what fills a new table with -1 is another store."""
    source = changed(("block < engine->total_local_blocks", "block < 2"))
    record = graded_text(source, made("long", "create_sequence 1 40 -> seq"))

    assert record.first_cause is not None
    assert record.first_cause.rule == "first-fit"
    assert "its search found no" in record.first_cause.hint


def test_lines_that_the_file_does_not_have_end_nothing() -> None:
    """`#line` gives any number to what follows."""
    source = changed(("Sequence *getSequenceById(", "#line 100000\nSequence *getSequenceById("))
    source = changed(("getSequence(item)->seq_id == seqId", "getSequence(item)->seq_id == seqId + 1"), text=source)
    record = graded_text(source, made("lookup", "create_sequence 1 5 -> seq; free_sequence 1 -> 0"))

    assert record.first_cause is not None
    assert record.first_cause.rule == "return-value"


def test_an_inlined_function_has_its_own_name() -> None:
    """Valgrind names the function around it."""
    source = changed(("    engine->ref_count[block]--;", "    engine->ref_count[block + 4]--; /* HERE */"))
    record = graded_text(source, made("last", "create_sequence 1 60 -> seq; free_sequence 1 -> 0"), valgrind=True)
    lines = [line for finding in record.findings for line in finding.source if line.line == line_of(source)]

    assert lines
    assert {line.function for line in lines} == {"releaseVisitor"}


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
