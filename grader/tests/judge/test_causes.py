"""From symptoms to the rule that is broken: votes, hints, and never a loss without a reason."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from grader.core.verdict import Verdict
from grader.runtime.native.native_played import BlockEvent, Fault, HeapEvent
from grader.tests.support.programs import (
    FREE_COUNT,
    by_hand,
    expected_records,
    first_case,
    graded_text,
    judged,
    line_of,
    places_of,
    right,
    second_case,
)


def test_what_shows_only_in_the_clean_up_has_little_weight() -> None:
    """Every case ends with a clean-up, so a leak shows in all of them; the one that differs earlier says more."""
    lost = [BlockEvent(HeapEvent.LIVE, 5, 1, 64, 0, 0)]
    leaking = by_hand(second_case())
    leaking.events = lost
    causes, _ = judged(leaking, leaking, leaking, by_hand(first_case(), (1, FREE_COUNT, 9)))

    assert causes[0].rule == "free-count"
    assert causes[1].rule in ("leak", "destroy")


def test_a_failing_build_explains_itself() -> None:
    """The first message of gcc is the diagnosis; no case is blamed."""
    source = right().replace("static const int NOT_MAPPED = -1;", "static const int NOT_MAPPED = -1; int x /* HERE */")
    record = graded_text(source, first_case())

    assert (record.verdict, record.score) == (Verdict.COMPILE_ERROR, 0)
    assert record.first_cause is not None
    assert (record.first_cause.rule, record.first_cause.cases) == ("compile", ())
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line in (line_of(source), line_of(source) + 2)


_VALUES = st.one_of(st.sampled_from([0, 1, -1, 2, 5, 16, 4096, 2**20]), st.integers(-(2**20), 2**20))
_EDITS = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.integers(0, 6), st.integers(0, 400), _VALUES), min_size=1, max_size=4
)


@settings(max_examples=250, deadline=None)
@given(edits=_EDITS, head=st.sampled_from([16, 48, 400]), fault=st.integers(-20, 6))
def test_points_are_never_lost_without_a_reason(edits: list[tuple[int, int, int, int]], head: int, fault: int) -> None:
    """Whatever goes wrong: a lost point has a diagnosis with a hint, and a defect that was seen costs a point."""
    cases = [first_case(), second_case()]
    sizes = [[min(len(places_of(record)), head) for record in expected_records(case)] for case in cases]
    places = [(which, step % len(sizes[which]), place, value) for which, step, place, value in edits]
    played = [
        by_hand(
            case,
            *((step, place % sizes[number][step], value) for which, step, place, value in places if which == number),
        )
        for number, case in enumerate(cases)
    ]
    if fault >= 0:
        del played[0].steps[fault:]
        played[0].fault = Fault(fault, 11, 0, ())
    causes, scores = judged(*played)
    whole = all(score.points == score.max_points for score in scores.values())

    assert whole == (not causes)
    assert all(0 <= score.points <= score.max_points for score in scores.values())
    if causes:
        assert causes[0].hint
        assert causes[0].summary
