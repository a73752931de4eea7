"""What is judged in every case: no point is lost without a finding, and none is earned by doing nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.core.case import Case
from grader.core.losses import cases_that_cost
from grader.core.verdict import Audience
from grader.judge.case_findings import case_findings
from grader.judge.compare import compare
from grader.judge.score import most_points
from grader.labs.paged_kv.lab import lab
from grader.report.rule_summary import rule_summary
from grader.report.text import render
from grader.runtime.native.native_played import HELD, BlockEvent, Fault, HeapEvent, NativePlayed
from grader.tests.support.programs import around, by_hand, first_case, graded_text, judged, made, observed
from grader.tests.support.raising import Raising

_FREE_COUNT = 6
"""Where free_local_blocks stands in a record."""


def counting(name: str, weight: int = 1) -> Case:
    """A case about free_local_blocks of this weight."""
    return made(name, "create_sequence 1 5 -> seq", header=f"pool_blocks = 4; weight = {weight}", rule="free-count")


def wrong(name: str, weight: int = 1) -> NativePlayed:
    """Such a case that a program fails."""
    return by_hand(counting(name, weight), (1, _FREE_COUNT, 2))


def leaking(case: Case, *, allocated_by: int = 1) -> NativePlayed:
    """A case that loses what this operation, counted from 0, allocated."""
    played = by_hand(case)
    played.events.append(BlockEvent(HeapEvent.LIVE, HELD, allocated_by, 64, 0, 0))
    return played


def crashing(case: Case) -> NativePlayed:
    """A case that ends in its second operation."""
    played = by_hand(case)
    del played.steps[1:]
    played.fault = Fault(1, 11, 0, ())
    return played


def test_each_earns_its_share_of_the_cases_without_a_finding() -> None:
    """No weight counts there; a crash is a memory error and no leak."""
    _, scores = judged(
        leaking(counting("leaking", 9)), crashing(counting("crashing")), by_hand(first_case()), by_hand(first_case())
    )
    leak, memory = scores["leak"], scores["memory-error"]

    assert (leak.points, leak.passed, leak.cases, leak.withheld) == (4, 3, 4, 0)
    assert (memory.points, memory.passed, memory.withheld) == (3, 3, 0)


@pytest.mark.parametrize(
    ("passed", "failed", "leak", "memory"),
    [(5, 1, 5, 4), (4, 2, 4, 3), (3, 3, 3, 2), (1, 5, 1, 1), (0, 1, 0, 0)],
)
def test_neither_earns_more_than_its_share_of_what_the_other_rules_earned(
    passed: int, failed: int, leak: int, memory: int
) -> None:
    """ceil(points x share), here of the six points of one rule, and no case has a finding about memory."""
    right = [by_hand(counting(f"right{number}")) for number in range(passed)]
    _, scores = judged(*right, *(wrong(f"wrong{number}") for number in range(failed)))

    assert scores["free-count"].points == passed * 6 // (passed + failed)
    assert (scores["leak"].points, scores["leak"].withheld) == (leak, 6 - leak)
    assert (scores["memory-error"].points, scores["memory-error"].withheld) == (memory, 4 - memory)


def test_hidden_cases_count_as_not_passed() -> None:
    """Of the share of the other rules too: what is earned is certain, and so is the most that can be."""
    hidden = {"free-count": 1, "leak": 1, "memory-error": 1}
    played = [by_hand(counting("right"))]
    _, scores = judged(*played, hidden=hidden)
    _, whole = judged(*played, wrong("hidden"))
    most = most_points(lab().rubric, [one.case for one in played], hidden)

    assert [(scores[rule].points, scores[rule].max_points) for rule in hidden] == [(3, 3), (3, 3), (2, 2)]
    assert all(scores[rule].points <= whole[rule].points for rule in hidden)
    assert most == sum(score.max_points for score in scores.values())


def test_a_public_case_with_a_finding_costs_a_point_of_what_can_be_earned() -> None:
    """Also where hidden cases and the share of the other rules leave little of it."""
    hidden = {"free-count": 5, "address": 5, "leak": 1, "memory-error": 1}
    cases = counting("leaking"), first_case()
    _, scores = judged(leaking(cases[0]), by_hand(cases[1]), hidden=hidden)

    assert scores["leak"].max_points == 1
    assert scores["leak"].points == 0


@pytest.mark.parametrize(("allocated_by", "charged"), [(0, {"leak", "destroy"}), (1, {"leak", "destroy", "traversal"})])
def test_memory_of_the_engine_is_no_matter_of_its_sequences_tables(allocated_by: int, charged: set[str]) -> None:
    """What llm_init allocated and nobody freed costs leak and destroy; a lost table costs traversal too."""
    played = [
        leaking(made(rule, "create_sequence 1 5 -> seq; llm_destroy -> 0", rule=rule), allocated_by=allocated_by)
        for rule in ("destroy", "traversal", "ref-count", "address")
    ]
    _, scores = judged(*played)

    assert {rule for rule, score in scores.items() if score.points + score.withheld < score.max_points} == charged


def test_lost_memory_of_unknown_origin_is_everybodys() -> None:
    """Of very many allocations the harness tells the number only."""
    case = made("many", "create_sequence 1 5 -> seq; llm_destroy -> 0", rule="traversal")
    played = by_hand(case)
    played.steps[-1] = replace(played.steps[-1], live=5000)
    rule = lab().rubric.rule("traversal")
    ((found,), _) = case_findings(observed(compare(played, lab().model)), lab(), optional=Raising())

    assert found.facets(rule) == {"heap"}
    assert found.facets(replace(rule, calls=frozenset({"free_sequence"}))) == set()


def test_reports_say_why_points_are_missing_that_no_finding_cost() -> None:
    """And do not look for cases that are to blame."""
    source = around("append_kv", "    if (engine != NULL) return -1;")
    record = graded_text(source, counting("count"), *(replace(first_case(), name=f"append{place}") for place in "ab"))
    leak = next(score for score in record.rules if score.rule == "leak")
    said = "nothing found; 2 points held back until more of the other rules are right"

    assert (leak.points, leak.withheld, cases_that_cost(record, "leak")) == (4, 2, [])
    assert said in " ".join(render(record).split())
    assert said[1:] in rule_summary(record, leak, Audience.STUDENT)
    assert "without a finding" not in rule_summary(record, record.rules[0], Audience.STUDENT)


def test_the_cases_to_blame_are_those_with_a_finding() -> None:
    """A crash is none for the rule about leaks, whatever rule its cause breaks."""
    source = around("append_kv", "    if (engine != NULL) __builtin_trap();")
    record = graded_text(source, counting("count"), first_case())

    assert cases_that_cost(record, "leak") == []
    assert [outcome.rule for outcome in cases_that_cost(record, "memory-error")] == ["address"]
