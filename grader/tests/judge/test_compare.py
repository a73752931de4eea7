"""Comparing: each operation is judged from the state the program itself was in, and no wrong program raises."""

from __future__ import annotations

import itertools
from array import array

import pytest
from hypothesis import given, settings, strategies as st

from grader.core.case import Case
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import Comparison, End
from grader.runtime.native.native_played import Fault, NativePlayed
from grader.tests.support.mistakes import MISTAKES
from grader.tests.support.programs import changed, comparisons, expected_records, made, told

_STORY = made(
    "story",
    """
    create_sequence 1 20 -> seq
    append_kv 1 11       -> 0
    fork_sequence 1 2    -> seq
    append_kv 2 12       -> 0
    append_kv 1 13       -> 0
    create_sequence 3 1  -> seq
    free_sequence 1      -> 0
    create_sequence 4 16 -> seq
    append_kv 4 14       -> 0
    fork_sequence 2 5    -> seq
    free_sequence 9      -> -1
    """,
    header="pool_blocks = 8",
)

_INIT, _CREATE, _FORK, _COPY, _FREE = 0, 1, 3, 4, 7
"""Operations of the story."""


def facets(comparison: Comparison) -> dict[int, set[str]]:
    """What differed, operation by operation."""
    return {
        deviation.operation: {difference.facet for difference in deviation.judgement.differences}
        for deviation in comparison.deviations
    }


def story(*replacements: tuple[str, str]) -> Comparison:
    """The story, played by the right program with these changes."""
    (comparison,) = comparisons(changed(*replacements), _STORY)
    assert comparison.end is End.REACHED
    return comparison


def reported(case: Case, records: list[bytes], **ending: object) -> NativePlayed:
    """A case that reported these records, and ended as said."""
    played = NativePlayed(case, steps=told(records))
    for name, value in ({"ended": True} | ending).items():
        setattr(played, name, value)
    return played


def test_a_right_program_does_not_deviate() -> None:
    """Not in one operation, not in one facet."""
    comparison = story()

    assert comparison.deviations == ()
    assert comparison.actual == comparison.expected
    assert (comparison.refused, comparison.ended_at) == (None, len(_STORY.trace.operations))


def test_a_forgotten_ref_count_is_the_forks_fault_only() -> None:
    """The appends and frees that follow do right by the counts that they find."""
    comparison = story(MISTAKES["ref-count"])

    assert facets(comparison) == {_FORK: {"ref_count"}, 10: {"ref_count"}}


@pytest.mark.parametrize(
    ("ending", "end"),
    [
        ({}, "reached"),
        ({"steps": 3, "status": 0}, "stopped"),
        ({"steps": 3, "status": 9}, "crash"),
        ({"steps": 3, "fault": Fault(3, 11, 0, ())}, "crash"),
        ({"steps": 3, "fault": Fault(3, 27, 0, ()), "hung": True}, "hang"),
        ({"steps": 3, "no_time": True}, "no-time"),
        ({"steps": 3, "left": Fault(3, 1, 0, ())}, "left"),
        ({"steps": 3, "misfit": True}, "stopped"),
        ({"steps": 3, "ended": False}, "stopped"),
    ],
)
def test_how_a_case_ends(ending: dict[str, object], end: str) -> None:
    """Each way out has its own name, and the operation that did not come back."""
    records = expected_records(_STORY)
    count = ending.pop("steps", len(records))
    assert isinstance(count, int)
    comparison = compare(reported(_STORY, records[:count], **ending), lab().model)

    kind = comparison.played.ending.kind if comparison.played.ending is not None else comparison.end.value
    assert (kind, comparison.ended_at) == (end, count)
    assert comparison.end == (end if end in ("reached", "no-time") else End.ENDED)
    assert comparison.deviations == ()
    assert len(comparison.expected) == len(records)


def test_an_allocation_in_a_refused_call_is_a_failing_difference() -> None:
    """Also when the call frees it again; in a call that works it is nobody's business."""
    case = made("refused", "create_sequence 1 5 -> seq; create_sequence 1 5 -> NULL")
    steps = told(expected_records(case), allocations=1, frees=1)
    comparison = compare(NativePlayed(case, steps=steps, ended=True), lab().model)

    assert facets(comparison) == {2: {"failing"}}


_VALUES = st.one_of(
    st.sampled_from([0, 1, -1, 2, 5, 16, 4095, 4096, 2**31 - 1, -(2**31), 2**20]), st.integers(-(2**31), 2**31 - 1)
)


@settings(max_examples=400, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 400), _VALUES), min_size=1, max_size=6),
    head=st.sampled_from([24, 140, 400]),
    count=st.sampled_from([5, 9, 13]),
)
def test_no_record_at_all_raises(edits: list[tuple[int, int, int]], head: int, count: int) -> None:
    """Whatever words a program puts into its structures: a comparison comes back."""
    records = expected_records(_STORY)
    for step, place, value in edits:
        words = array("i", records[step])
        words[place % min(len(words), head)] = value  # the first words are those of the management
        records[step] = words.tobytes()
    comparison = compare(reported(_STORY, records[:count]), lab().model)

    assert comparison.ended_at <= count
    assert len(comparison.expected) == len(records)


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1, -2, 1 << 20])
def test_no_extreme_number_anywhere_raises(value: int) -> None:
    """Each word of the management structures after each operation, one at a time."""
    records = expected_records(_STORY)
    for step, place in itertools.product(range(len(records)), range(70)):
        words = array("i", records[step])
        words[place] = value
        comparison = compare(reported(_STORY, [*records[:step], words.tobytes(), *records[step + 1 :]]), lab().model)

        assert comparison.end in (End.REACHED, End.UNREADABLE)


@pytest.mark.parametrize("record", [b"", b"\0", b"\0" * 8, b"\xff" * 4096, b"\0" * 100_000])
def test_a_record_that_is_none_ends_the_case(record: bytes) -> None:
    """Bytes that cannot be decoded are unreadable structures, whatever they are."""
    records = [*expected_records(_STORY)[:2], record, *expected_records(_STORY)[3:]]
    comparison = compare(reported(_STORY, records), lab().model)

    assert (comparison.end, comparison.ended_at) == (End.UNREADABLE, 2)
