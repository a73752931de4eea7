"""From cases to points: one defect costs what it is worth, nothing is free, and nothing is taken twice."""

from __future__ import annotations

from functools import cache

import pytest

from grader.assignment import case_files
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import Fault
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    by_hand,
    changed,
    expected_records,
    first_case,
    graded_text,
    judged,
    made,
    right,
)

_FREE_COUNT = 6
"""Where free_local_blocks stands in a record."""

_IMPLICIT_END = {"destroy", "leak", "memory-error"}
"""What a bad end of the llm_destroy that the grader added may cost."""


@cache
def every_case() -> tuple[Case, ...]:
    """All cases of the lab."""
    chosen = lab()
    return tuple(case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed))


def counting(name: str, weight: int) -> Case:
    """A case about free_local_blocks of this weight."""
    return made(name, "create_sequence 1 5 -> seq", header=f"pool_blocks = 4; weight = {weight}", rule="free-count")


def lost(record: Record) -> set[str]:
    """The rules that lost points."""
    return {rule.rule for rule in record.rules if rule.points < rule.max_points}


@pytest.mark.parametrize(
    ("right_weights", "wrong_weights", "points"),
    [
        ((1, 1), (), 6),
        ((1,), (1,), 3),
        ((1, 1), (1,), 4),
        ((5,), (1,), 5),
        ((1,), (5,), 1),
        ((1,), (6,), 0),
        ((), (1,), 0),
        ((10,), (1,), 5),
    ],
)
def test_a_rule_earns_its_share_rounded_down(
    right_weights: tuple[int, ...], wrong_weights: tuple[int, ...], points: int
) -> None:
    """floor(points x weight passed / weight of its cases), here with six points."""
    good = [by_hand(counting(f"right{number}", weight)) for number, weight in enumerate(right_weights)]
    bad = [
        by_hand(counting(f"wrong{number}", weight), (1, _FREE_COUNT, 2)) for number, weight in enumerate(wrong_weights)
    ]
    _, scores = judged(*good, *bad)
    rule = scores["free-count"]

    assert (rule.max_points, rule.points) == (6, points)
    assert (rule.cases, rule.passed) == (len(good) + len(bad), len(good))


def test_any_failing_case_costs_a_point_of_its_rule_and_none_of_another() -> None:
    """One of a hundred; the others keep all."""
    many = [by_hand(counting(f"right{number}", 1)) for number in range(99)]
    _, scores = judged(*many, by_hand(counting("wrong", 1), (1, _FREE_COUNT, 2)), by_hand(first_case()))

    assert [rule for rule, score in scores.items() if score.points < score.max_points] == ["free-count"]
    assert scores["free-count"].points == 5


def test_compiling_alone_earns_nothing() -> None:
    """Its points come only together with some other point."""
    wrong = by_hand(counting("wrong", 1), (1, _FREE_COUNT, 2))
    wrong.fault, wrong.steps = Fault(1, 11, 0, ()), wrong.steps[:1]
    _, scores = judged(wrong)
    _, fine = judged(wrong, by_hand(counting("right", 1)))

    assert {score.points for score in scores.values()} == {0}
    assert fine["compile"].points == fine["compile"].max_points == 4


def test_warnings_that_were_forgiven_cost_the_compiles_points() -> None:
    """A build with a finding earns none of them."""
    _, scores = judged(by_hand(first_case()), builds=False)

    assert (scores["compile"].points, scores["address"].points) == (0, 5)


@pytest.mark.parametrize("valgrind", [False, True], ids=["native", "valgrind"])
def test_a_program_that_refuses_everything_scores_nothing(*, valgrind: bool) -> None:
    """In all cases of the lab: no rule, no leak, no memory error, no compile."""
    source = (SAMPLES / "wrong_answer" / "all_null" / "llm_memory.c").read_bytes()
    record = graded_text(source, *every_case(), valgrind=valgrind)

    assert (record.score, record.max_score) == (0, 100)
    assert record.verdict is Verdict.WRONG_ANSWER


def test_pretending_earns_nothing() -> None:
    """Who answers every call as if it were done, with a pointer to anywhere or a number, has done nothing either."""
    source = (SAMPLES / "wrong_answer" / "all_null" / "llm_memory.c").read_text(encoding="utf-8")
    source = source.replace("return NULL", "return (void *)(size_t)4").replace("return -1", "return 0")
    record = graded_text(source, *every_case())

    assert (record.verdict, record.score) == (Verdict.WRONG_ANSWER, 0)


_LAZY = {
    "only llm_init works": ("create_sequence", "free_sequence", "fork_sequence", "append_kv"),
    "no fork and no append": ("fork_sequence", "append_kv"),
}


@pytest.mark.parametrize("missing", _LAZY.values(), ids=_LAZY)
def test_what_is_not_done_earns_nothing_for_being_harmless(missing: tuple[str, ...]) -> None:
    """A call that only refuses leaks nothing and breaks nothing; it has earned nothing by that."""
    text = right()
    for call in missing:
        start = text.index(f"{call}(LLMEngine *engine")
        start = text.index("{", start) + 1
        text = (
            text[:start]
            + f" if (engine != (void *)1) return {'NULL' if 'create' in call or 'fork' in call else '-1'};"
            + text[start:]
        )
    record = graded_text(text, *every_case())
    leak = next(rule for rule in record.rules if rule.rule == "leak")

    assert record.score is not None
    assert record.score < (25 if len(missing) > 2 else 60)
    assert leak.points < leak.max_points


_BAD_ENDS = {
    "crash": "volatile int *volatile nowhere = NULL; *nowhere = 1;",
    "hang": "for (volatile int on = 1; on;) { }",
    "exit": "exit(0);",
    "refusal": "return -1;",
    "free of the pool": "free(*(void *volatile *)engine);",
}


@pytest.mark.parametrize("end", _BAD_ENDS)
def test_a_bad_end_of_the_clean_up_costs_only_what_is_about_it(end: str) -> None:
    """Every case ends with the llm_destroy that the grader adds; a defect there is one defect."""
    chosen = [case for case in every_case() if case.trace.operations[-1].implicit and case.rule not in _IMPLICIT_END]
    source = around(
        "llm_destroy", f"    if (engine != NULL) {{ {_BAD_ENDS[end]} }}", top=POSIX + "#include <stdlib.h>\n"
    )
    record = graded_text(source, *chosen[:60], made("end", "create_sequence 1 5 -> seq", rule="destroy"))

    assert lost(record) <= _IMPLICIT_END
    assert "destroy" in lost(record)
    assert record.verdict is not Verdict.ACCEPTED


def test_the_same_end_in_a_case_about_it_costs_that_case() -> None:
    """An llm_destroy that the case wrote is an operation like any other."""
    source = around("llm_destroy", "    if (engine != NULL) abort();")
    case = made("ended", "create_sequence 1 5 -> seq; llm_destroy -> 0", rule="free-count")
    record = graded_text(source, case, first_case())

    assert "free-count" in lost(record)
    assert "address" not in lost(record)


@pytest.mark.parametrize(
    "edit",
    [(1, _FREE_COUNT, 2), (1, 1, 9), (1, 8, 3), (5, 1, -7), (1, 2, 9), (6, 0, 3), (1, 16, 7), (0, 4, 0)],
)
def test_a_defect_that_was_seen_never_leaves_full_marks(edit: tuple[int, int, int]) -> None:
    """Also where no case of its rule caught it; then the rule of the diagnosis loses one."""
    diagnosed, scores = judged(by_hand(first_case(), edit))
    points, most = (sum(getattr(score, name) for score in scores.values()) for name in ("points", "max_points"))

    assert diagnosed.first_cause is not None
    assert points < most
    assert all(0 <= score.points <= score.max_points for score in scores.values())


def test_a_chosen_part_of_the_cases_can_be_passed_in_full() -> None:
    """A rule without a chosen case has no points to earn or to lose."""
    record = graded_text(right(), first_case(), counting("one", 1))
    by_rule = {rule.rule: (rule.points, rule.max_points) for rule in record.rules}

    assert record.verdict is Verdict.ACCEPTED
    assert by_rule["address"] == (5, 5)
    assert by_rule["free-count"] == (6, 6)
    assert by_rule["cow"] == (0, 0)
    assert record.score == record.max_score == sum(most for _, most in by_rule.values())


def test_a_defect_outside_the_chosen_cases_rules_still_shows() -> None:
    """One case about addresses, a wrong counter: not accepted, and no rule below zero."""
    source = changed(
        (
            "        engine->free_local_blocks--;",
            "        engine->free_local_blocks -= 1 + (engine->free_local_blocks == 4);",
        )
    )
    record = graded_text(source, first_case())

    assert record.first_cause is not None
    assert record.first_cause.rule == "free-count"
    assert record.verdict is Verdict.WRONG_ANSWER
    assert record.score is not None
    assert 0 < record.score < record.max_score
    assert all(0 <= rule.points <= rule.max_points for rule in record.rules)


def test_all_cases_together_are_worth_a_hundred() -> None:
    """Whole numbers, every rule of the rubric, in its order, and every rule has cases."""
    record = graded_text(right(), *every_case())
    chosen = lab().rubric

    assert (record.score, record.max_score) == (100, 100)
    assert [rule.rule for rule in record.rules] == [rule.id for rule in chosen.rules]
    assert [rule.max_points for rule in record.rules] == [rule.points for rule in chosen.rules]
    assert all(rule.cases > 0 and rule.passed == rule.cases for rule in record.rules)


def test_a_hundred_crashes_cost_no_more_than_their_rules() -> None:
    """A program that crashes in every append keeps what the other calls earn."""
    attempt = attempted(around("append_kv", "    if (engine != NULL) __builtin_trap();"), *every_case())
    scores = {score.rule: score for score in attempt.scores}

    assert scores["validation"].points >= 2
    assert scores["list"].points == scores["list"].max_points
    assert scores["address"].points == 0
    assert 0 < scores["leak"].points < scores["leak"].max_points
    assert expected_records(first_case())
