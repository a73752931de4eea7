"""Comparing: each operation is judged from the state the program itself was in, and no wrong program raises."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from grader.core.case import Case
from grader.core.judgement import Judgement
from grader.judge.compare import compare
from grader.labs.paged_kv.judging.model import PagedKVModel
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import Comparison, End
from grader.runtime.native.native_played import Fault, NativePlayed
from grader.tests.support.mistakes import LAST_FIT, MISTAKES, NO_COPY
from grader.tests.support.programs import changed, comparisons, expected_records, first_case, made, told
from reference.operation import Operation

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


def test_a_wrong_counter_does_not_spread() -> None:
    """free_local_blocks is one too high from the first call on; no later call is blamed for it."""
    comparison = story(("engine->free_local_blocks = blockCount;", "engine->free_local_blocks = blockCount + 1;"))

    assert facets(comparison) == {_INIT: {"counters"}}


def test_a_new_sequence_at_the_head_is_the_lists_business() -> None:
    """Order differs where a sequence is linked in, and nowhere else."""
    comparison = story(
        ("    ListNode *last = head->prev;\n", "    ListNode *first = head->next;\n"),
        ("    item->prev = last;\n    item->next = head;\n    last->next = item;\n    head->prev = item;",
         "    item->next = first;\n    item->prev = head;\n    first->prev = item;\n    head->next = item;"),
    )  # fmt: skip

    assert set.union(*facets(comparison).values()) == {"list"}
    assert sorted(facets(comparison)) == [3, 6, 8, 10]


def test_last_fit_differs_in_the_choice_alone() -> None:
    """Tables, counts and pool are judged with the blocks that the program chose."""
    comparison = story(LAST_FIT)

    assert set.union(*facets(comparison).values()) == {"choice"}
    assert set(facets(comparison)) == {1, 4, 6, 8, 9}


def test_last_fit_with_a_forgotten_copy_has_both_faults_apart() -> None:
    """A second defect shows through the first."""
    comparison = story(LAST_FIT, NO_COPY)

    assert facets(comparison)[_COPY] == {"choice", "copied"}
    assert set.union(*facets(comparison).values()) == {"choice", "copied"}


def test_a_copy_that_is_never_made_stays_the_copys_fault() -> None:
    """Writing into the shared block: the word is in place, the old block was written; then all goes on from there."""
    comparison = story(
        (
            "bool isShared = isMapped && engine->ref_count[table[l2]] > 1;",
            "bool isShared = false && engine->ref_count[0];",
        )
    )

    assert "copied" in facets(comparison)[_COPY] or "tables" in facets(comparison)[_COPY]
    assert set(facets(comparison)) <= {_COPY, 5}


def test_a_memset_in_create_is_told_where_it_happens() -> None:
    """The pool stays zeroed; the calls that follow are not blamed."""
    comparison = story(MISTAKES["no-premature-write"])

    assert facets(comparison) == {1: {"untouched"}, 6: {"untouched"}, 8: {"untouched"}}


def test_a_wrong_reply_is_the_replys_fault_only() -> None:
    """The work was done; what follows finds it done."""
    comparison = story(MISTAKES["return-value"])

    assert set.union(*facets(comparison).values()) == {"reply"}
    assert set(facets(comparison)) == {2, 4, 5, 9}
    assert comparison.refused is None


def test_the_first_refusal_of_what_must_be_accepted() -> None:
    """A refused call that the reference refuses too is none."""
    comparison = story(("required > engine->free_local_blocks", "required >= engine->free_local_blocks - 4"))

    assert comparison.refused is not None
    assert _STORY.trace.operations[comparison.refused].name == "create_sequence"
    assert comparison.actual[comparison.refused].text == "NULL"


def test_a_difference_keeps_its_physical_numbers() -> None:
    """The text for the student has the block ids of his own run."""
    comparison = story(("        engine->ref_count[result] = 1;", "        engine->ref_count[result] = 2;"))
    texts = [difference.field for difference in comparison.deviations[0].judgement.differences]

    assert texts == ["ref_count[0]", "ref_count[1]"]
    assert [difference.actual for difference in comparison.deviations[0].judgement.differences] == ["2", "2"]


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


def test_the_clean_up_is_what_the_grader_added() -> None:
    """The implicit llm_destroy at the end; not the implicit llm_init, nor a destroy that the case wrote."""
    implicit = compare(reported(first_case(), expected_records(first_case())), lab().model)
    case = made("explicit", "create_sequence 1 5 -> seq; llm_destroy -> 0")
    explicit = compare(reported(case, expected_records(case)), lab().model)

    assert [implicit.is_cleanup(number) for number in range(-1, 8)] == [False] * 7 + [True, False]
    assert not any(explicit.is_cleanup(number) for number in range(4))


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


def test_reports_behind_the_last_operation_count_for_nothing() -> None:
    """A program that can write into the channel gains and breaks nothing by saying more than it was asked."""
    comparison = compare(reported(_STORY, [*expected_records(_STORY), b""]), lab().model)

    assert (comparison.deviations, comparison.ended_at) == ((), len(_STORY.trace.operations))


def test_the_first_program_of_a_class_may_be_a_wrong_one() -> None:
    """What is kept of a case is the reference's, whoever was compared first and wherever that one ended."""
    right = expected_records(_STORY)
    wrong = [*right[:2], *(bytes(8) + record[8:] for record in right[2:])]  # the replies alone
    seen = replace(_STORY, trace=replace(_STORY.trace))
    for records in (wrong[:4], right, wrong):
        unseen = replace(_STORY, trace=replace(_STORY.trace))
        known, alone = (compare(reported(case, records), lab().model) for case in (seen, unseen))

        assert (facets(known), known.follows) == (facets(alone), alone.follows)
        assert bool(known.deviations) is (records is not right)


def test_a_right_program_is_never_decoded() -> None:
    """One comparison of bytes an operation is all that it costs."""
    asked: list[bytes] = []

    class Watched(PagedKVModel):
        """The model, noting what it is asked to judge."""

        def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
            asked.append(actual)
            return super().judge(before, operation, actual)

    comparison = compare(reported(first_case(), expected_records(first_case())), Watched)
    assert asked == []
    assert comparison.end is End.REACHED
