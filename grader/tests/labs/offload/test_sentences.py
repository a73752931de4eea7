"""What a report says of samples whose defect shows far from where it is."""

from __future__ import annotations

import pytest

from grader.core.record import Record
from grader.labs.offload.device import RowSpan
from grader.tests.labs.offload.sent import SAMPLES, cases, graded, replay_of
from reference.operation import Operation


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


@pytest.mark.parametrize(
    ("name", "case", "where", "schedules"),
    [
        ("frees_at_once", "runner/decode_begins_a_block", "decode at operation 3", "late, early or at random"),
        ("copies_before_it_computes", "runner/a_new_runner", "decode at operation 5", "early or at random"),
        ("logits_left_behind", "runner/a_new_runner", "prefill at operation 2", "late, early or at random"),
    ],
)
def test_a_race_names_the_call_whose_logits_it_spoils(name: str, case: str, where: str, schedules: str) -> None:
    """Also where that is a later call: a prefill that loses rows of the cache has right logits itself."""
    record = _graded(name, case)
    first = record.first_finding(record.outcomes[0])

    assert first is not None
    assert first.operation == 2
    assert f"; the logits of {where} are wrong on a device that runs {schedules}" in first.message


def test_rows_that_the_grader_fills_in_are_no_fault_of_a_schedule() -> None:
    """A schedule is compared with the eager one on memory that nobody filled in."""
    replay = replay_of(Operation(name="engine", arguments=(1, 1, 1, 1, 1)))
    replay.take([["stream", [0, ""], [], 1], *(["alloc_pinned", [number], [1, 1], 1] for number in (0, 1))])
    replay.memory.contents[0][:] = 1.0
    replay.take([["alloc", [2, 0], [1, 1], 1], ["copy", [2, 0, 0], [0, 1, 0, 1], 1]])
    replay.take([["copy", [1, 2, 0], [0, 1, 0, 1], 1], ["sync", [], [], 1]])

    assert replay.memory.contents[1] == 1.0
    assert replay.wrong_under(RowSpan(1, 0, 1)) == []
