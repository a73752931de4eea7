"""From symptoms to the rule that is broken: votes, hints, and never a loss without a reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from grader.core.verdict import Judged, Verdict
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import BlockEvent, Fault, HeapEvent
from grader.tests.support.mistakes import MISTAKES
from grader.tests.support.programs import (
    POSIX,
    around,
    by_hand,
    changed,
    expected_records,
    first_case,
    graded_text,
    judged,
    line_of,
    made,
    right,
    second_case,
)

_HIDDEN = 'pool_blocks = 4; visibility = "hidden"'


_FREE_COUNT = 6
"""Where free_local_blocks stands in a record."""


def test_nothing_wrong_is_no_diagnosis() -> None:
    """And the verdict is accepted."""
    diagnosed, scores = judged(by_hand(first_case()), by_hand(second_case()))

    assert (diagnosed.first_cause, diagnosed.verdict) == (None, Verdict.ACCEPTED)
    assert all(score.points == score.max_points for score in scores.values())


def test_a_cause_leads_to_the_operation_of_the_case() -> None:
    """Rule, case, operation, summary with expected and actual, hint."""
    diagnosed, _ = judged(by_hand(second_case()), by_hand(first_case(), (1, _FREE_COUNT, 9)))
    diagnosis = diagnosed.first_cause

    assert diagnosis is not None
    assert (diagnosis.rule, diagnosis.cases[0], diagnosis.operation) == ("free-count", "made/first", 2)
    assert "free_local_blocks is 9, expected 3" in diagnosis.summary
    assert diagnosis.hint


def test_the_rule_that_explains_most_cases_is_the_diagnosis() -> None:
    """Two against one; the other rule is named beside it."""
    wrong_count = by_hand(first_case(), (1, _FREE_COUNT, 9))
    wrong_reply = by_hand(second_case(), (2, 1, 7))
    diagnosed, _ = judged(wrong_reply, wrong_count, wrong_count)

    assert diagnosed.first_cause is not None
    assert [cause.rule for cause in diagnosed.causes] == ["free-count", "return-value"]


def test_what_was_never_set_is_said_without_a_number() -> None:
    """What the driver fills fresh memory with is nothing that the program chose."""
    record = graded_text(changed(("    sequence->kv_count = kvCount;", "    (void)kvCount;")), first_case())

    assert record.first_cause is not None
    assert "kv_count must be 5; it was never set" in record.first_cause.summary
    assert "-1515870811" not in f"{record.first_cause.summary}{record.first_cause.hint}"


def test_what_shows_only_in_the_clean_up_has_little_weight() -> None:
    """Every case ends with a clean-up, so a leak shows in all of them; the one that differs earlier says more."""
    lost = [BlockEvent(HeapEvent.LIVE, 5, 1, 64, 0, 0)]
    leaking = by_hand(second_case())
    leaking.events = lost
    diagnosed, _ = judged(leaking, leaking, leaking, by_hand(first_case(), (1, _FREE_COUNT, 9)))

    assert diagnosed.first_cause is not None
    assert diagnosed.first_cause.rule == "free-count"
    assert diagnosed.causes[1].rule in ("leak", "destroy")


def test_a_public_case_is_shown_where_there_is_one() -> None:
    """A student learns nothing from a case that he may not see."""
    story = "create_sequence 1 5 -> seq"
    hidden, public = (
        made("hidden", story, header=_HIDDEN),
        made("public", f"{story}; append_kv 1 3 -> 0; append_kv 1 4 -> 0"),
    )
    diagnosed, _ = judged(by_hand(hidden, (1, _FREE_COUNT, 9)), by_hand(public, (1, _FREE_COUNT, 9)))

    assert diagnosed.first_cause is not None
    assert diagnosed.first_cause.cases[0] == "made/public"


def test_a_wrong_state_goes_before_the_crash_that_follows() -> None:
    """The first bad operation is the cause; what comes of it is shown, but not blamed."""
    source = changed(
        (
            "    sequence->block_table = malloc(sizeof(int *) * L1_PT_SIZE);",
            "    sequence->block_table = seqId < 5 ? malloc(sizeof(int *) * L1_PT_SIZE) : NULL;",
        )
    )
    record = graded_text(source, first_case(), second_case())

    assert record.verdict is Verdict.RUN_TIME_ERROR
    assert record.first_cause is not None
    assert record.first_cause.cases[0] == "made/second"
    assert record.first_cause.lines


@pytest.mark.parametrize("rule", MISTAKES)
def test_one_mistake_is_named(rule: str) -> None:
    """The rule, a hint in the handout's words, and points lost."""
    cases = [
        first_case(),
        second_case(),
        made(
            "twice",
            "create_sequence 1 5 -> seq; create_sequence 1 5 -> NULL; create_sequence 2 5 -> seq;"
            "free_sequence 1 -> 0; create_sequence 3 20 -> seq",
        ),
    ]
    record = graded_text(changed(MISTAKES[rule]), *cases)

    assert record.first_cause is not None
    assert record.first_cause.rule == rule
    assert len(record.first_cause.hint) > 30
    assert record.score is not None
    assert record.score < record.max_score


def test_a_crash_is_explained_with_the_students_line() -> None:
    """Summary and source line lead to the same place."""
    source = around("append_kv", "    volatile int *volatile nowhere = NULL; *nowhere = 1; /* HERE */", top=POSIX)
    record = graded_text(source, first_case(), second_case())

    assert record.first_cause is not None
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line == line_of(source)
    assert "crashes" in record.first_cause.summary


def test_a_second_engine_after_the_first_is_several_engines_too() -> None:
    """Statics live on through a case on purpose: what only the second engine of a case meets, came from the first."""
    story = "llm_init 128 -> engine; {0}; llm_destroy -> 0; llm_init 128 -> engine; {0}; llm_destroy -> 0"
    anew = made("anew", story.format("create_sequence 1 20 -> seq"), header="weight = 1")
    source = around(
        "create_sequence",
        "    if (gone) return NULL;",
        text=around("llm_destroy", after="    gone = engine != NULL;", top="static int gone;"),
    )
    record = graded_text(source, anew, first_case(), second_case())

    assert record.first_cause is not None
    assert (record.first_cause.rule, record.first_cause.cases[0], record.first_cause.operation) == (
        "isolation",
        "made/anew",
        5,
    )


def test_a_failing_build_explains_itself() -> None:
    """The first message of gcc is the diagnosis; no case is blamed."""
    source = right().replace("static const int NOT_MAPPED = -1;", "static const int NOT_MAPPED = -1; int x /* HERE */")
    record = graded_text(source, first_case())

    assert (record.verdict, record.score) == (Verdict.COMPILE_ERROR, 0)
    assert record.first_cause is not None
    assert (record.first_cause.rule, record.first_cause.cases) == ("compile", ())
    assert record.first_cause.lines
    assert record.first_cause.lines[0].line in (line_of(source), line_of(source) + 2)


def test_every_rule_that_can_be_broken_by_a_case_has_a_known_mistake() -> None:
    """Else it could never be diagnosed."""
    chosen = lab()
    explained = {mistake.rule for mistake in chosen.mistakes}

    assert {rule.id for rule in chosen.rubric.rules if rule.judged is not Judged.BUILD} <= explained


_VALUES = st.one_of(st.sampled_from([0, 1, -1, 2, 5, 16, 4096, 2**20]), st.integers(-(2**20), 2**20))
_EDITS = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.integers(0, 6), st.integers(0, 400), _VALUES), min_size=1, max_size=4
)


@settings(max_examples=250, deadline=None)
@given(edits=_EDITS, head=st.sampled_from([16, 48, 400]), fault=st.integers(-20, 6))
def test_points_are_never_lost_without_a_reason(edits: list[tuple[int, int, int, int]], head: int, fault: int) -> None:
    """Whatever goes wrong: a lost point has a diagnosis with a hint, and a defect that was seen costs a point."""
    cases = [first_case(), second_case()]
    sizes = [[min(len(record) // 4, head) for record in expected_records(case)] for case in cases]
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
    diagnosed, scores = judged(*played)
    whole = all(score.points == score.max_points for score in scores.values())

    assert whole == (diagnosed.first_cause is None)
    assert whole == (diagnosed.verdict is Verdict.ACCEPTED)
    assert all(0 <= score.points <= score.max_points for score in scores.values())
    if diagnosed.first_cause is not None:
        assert diagnosed.first_cause.hint
        assert diagnosed.first_cause.summary
