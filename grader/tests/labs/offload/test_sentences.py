"""What a report says of samples whose defect shows far from where it is."""

from __future__ import annotations

import pytest

from grader.core.record import Record
from grader.tests.labs.offload.sent import SAMPLES, cases, graded


def _graded(name: str, case_name: str) -> Record:
    record, _ = graded(SAMPLES / "wrong_answer" / name, [case for case in cases() if case.name == case_name])
    return record


def test_garbage_that_is_read_is_named_with_its_line() -> None:
    """All that is computed from it counts as computed: no other part of the call is wrong for it."""
    record = _graded("decode_rows_from_zero", "runner/second_prompt")

    (finding,) = {(one.kind, one.source[0].line): one for one in record.findings}.values()

    assert finding.kind == "values"
    assert finding.source[0].line == 186
    assert "(stream 'compute', line 186) reads row 0 of decode_k_buffer, which holds garbage" in finding.message


@pytest.mark.parametrize(
    ("name", "case", "wait", "record_line"),
    [
        ("marks_done_before_attention", "runner/ring_of_two", 122, 144),
        ("mark_done_does_nothing", "runner/ring_of_two", 144, 111),
    ],
)
def test_a_wait_for_an_event_that_stands_for_too_little_is_named(
    name: str, case: str, wait: int, record_line: int
) -> None:
    """With the line that recorded the event."""
    said = f"(the event that line {wait} waits for was recorded earlier, by line {record_line})"

    record = _graded(name, case)
    first = record.first_finding(record.outcomes[0])

    assert first is not None
    assert said in first.message
