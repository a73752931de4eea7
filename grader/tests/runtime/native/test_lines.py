"""The line where a wrong thing was done: by a second build that tells of its blocks and stores."""

from __future__ import annotations

import pytest

from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.programs import changed, first_case, graded_text, line_of, made, second_case

_HERE = "/* HERE */"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "required > engine->free_local_blocks)\n    {\n        return NULL;",
            "required > 1)\n    {\n        return NULL; /* HERE */",
        ),
        ("    sequence->kv_count++;\n    return RESULT_OK;", "    sequence->kv_count++;\n    return 1; /* HERE */"),
        ("    engine->free_local_blocks = blockCount;", "    engine->free_local_blocks = blockCount - 1; /* HERE */"),
        ("        engine->free_local_blocks--;", "        engine->free_local_blocks -= 2; /* HERE */"),
        ("    engine->ref_count[block]++;", "    engine->ref_count[block] = 9; /* HERE */"),
        ("    sequence->kv_count++;", "    sequence->kv_count += 2; /* HERE */"),
        ("    head->prev = item;", "    head->prev = last; /* HERE */"),
    ],
    ids=["a return", "another return", "a count", "a count in a helper", "a ref_count", "a field", "a link"],
)
def test_a_wrong_reply_and_a_wrong_value_have_their_line(old: str, new: str) -> None:
    """The return that was taken, or the last store to the place that is wrong."""
    source = changed((old, new))
    fork = made("fork", "create_sequence 1 5 -> seq; fork_sequence 1 2 -> seq")
    record = graded_text(source, made("long", "create_sequence 1 40 -> seq"), first_case(), second_case(), fork)

    assert record.first_cause is not None
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line == line_of(source)


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


def test_a_goto_is_shown_where_it_was_taken() -> None:
    """The return at the end is that of every refusal."""
    refusal = (
        "required > engine->free_local_blocks)\n    {\n        return NULL;\n    }\n\n    Sequence *sequence = new"
    )
    jump = "required > 1)\n    {\n        goto out; /* HERE */\n    }\n\n    Sequence *sequence;\n    sequence = new"
    end = "&sequence->node);\n    return sequence;\n"
    source = changed((refusal, jump), (f"{end}}}\n\nint free_", f"{end}out:\n    return NULL;\n}}\n\nint free_"))
    record = graded_text(source, made("long", "create_sequence 1 40 -> seq"))

    assert record.first_cause is not None
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line in (line_of(source), line_of(source) - 2)


def test_a_search_that_finds_nothing_is_no_wrong_number_of_blocks() -> None:
    """The call stores the -1 that it got; what fills a new table with -1 is another store."""
    source = changed(("block < engine->total_local_blocks", "block < 2"))
    record = graded_text(source, made("long", "create_sequence 1 40 -> seq"))

    assert record.first_cause is not None
    assert record.first_cause.rule == "first-fit"
    assert "its search found no" in record.first_cause.hint


def test_what_only_fills_a_table_is_no_line_of_a_missing_block() -> None:
    """The loop that maps too few blocks is not where the table was filled."""
    source = changed(("index < required; index++", "index < required - 1; index++"))
    record = graded_text(source, made("long", "create_sequence 1 40 -> seq"))

    assert record.first_cause is not None
    assert record.first_cause.rule == "block-table"
    assert not record.first_cause.lines
    assert "and nothing else after it" in record.first_cause.hint


def test_a_table_that_the_call_itself_fills_is_told_from_a_failed_search() -> None:
    """The mark for nothing has a name of the student's, so the text of the line says nothing."""
    inline = (
        "if (sequence->block_table[l1] == NULL)\n        {\n"
        "            sequence->block_table[l1] = malloc(sizeof(int) * L2_PT_SIZE);\n"
        "            for (int k = 0; k < L2_PT_SIZE; k++) sequence->block_table[l1][k] = NOT_MAPPED;\n        }\n"
    )
    before = "int l2 = index % L2_PT_SIZE;\n\n        "
    source = changed((f"{before}addTableIfMissing(sequence, l1);\n", f"{before}{inline}"))
    trace = made("long", "create_sequence 1 40 -> seq")
    short = graded_text(changed(("index < required; index++", "index < required - 1; index++"), text=source), trace)
    failed = graded_text(changed(("block < engine->total_local_blocks", "block < 2"), text=source), trace)

    assert short.first_cause is not None
    assert failed.first_cause is not None
    assert (short.first_cause.rule, failed.first_cause.rule) == ("block-table", "first-fit")


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


def test_what_a_call_leaves_as_it_was_is_said() -> None:
    """In memory of before, although the call allocates too; and what is stored nearest to it, with the line."""
    source = changed(("        engine->free_local_blocks--;", "        (void)engine;"))
    record = graded_text(source, made("long", "create_sequence 1 40 -> seq"))

    assert record.first_cause is not None
    line = source[: source.index("(void)engine;")].count("\n")  # the line before it raises the ref_count
    assert record.first_cause.hint.endswith(
        f"This call never stores to free_local_blocks; it stores to ref_count[0], at llm_memory.c:{line}."
    )
