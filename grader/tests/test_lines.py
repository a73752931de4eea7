"""The line where a wrong thing was done: by a second build that tells of its blocks and stores."""

from __future__ import annotations

import pytest

from grader.tests.programs import changed, first_case, graded_text, line_of, made, second_case

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

    assert record.diagnosis is not None
    assert record.diagnosis.source_line is not None
    assert record.diagnosis.source_line.line == line_of(source)


def test_a_store_that_is_missing_is_told() -> None:
    """No line is wrong, one is not there."""
    source = changed(("        engine->free_local_blocks--;", "        (void)engine;"))
    record = graded_text(source, first_case(), second_case())

    assert record.diagnosis is not None
    assert record.diagnosis.source_line is None
    assert "This call never stores to " in record.diagnosis.hint


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

    assert record.diagnosis is not None
    assert record.diagnosis.source_line is not None
    assert record.diagnosis.source_line.line == line_of(source)
    assert "it uses memory that was freed at llm_memory.c:" in record.diagnosis.hint


def test_the_function_that_decided_a_return_is_named() -> None:
    """A return of the call itself says little where a helper found nothing."""
    source = changed(("getSequence(item)->seq_id == seqId", "getSequence(item)->seq_id == seqId + 1"))
    record = graded_text(source, made("lookup", "create_sequence 1 5 -> seq; free_sequence 1 -> 0"))

    assert record.diagnosis is not None
    assert "getSequenceById returned at llm_memory.c:" in record.diagnosis.hint
