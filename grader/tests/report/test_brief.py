"""The report on one screen: what it shows of causes, points and hidden cases, and that it never becomes long."""

from __future__ import annotations

from dataclasses import replace

from grader.core.verdict import (
    Finding,
    RuleScore,
    Verdict,
    Visibility,
)
from grader.report import text
from grader.tests.support.handmade import outcome, record_of


def test_hidden_cases_stand_below_the_rules_that_lost_points_by_them() -> None:
    """A hidden case that leaks and is right for its own rule is the leak's, and no more titles than a few are told."""
    leak = RuleScore(rule="leak", title="nothing is lost", handout="Task 5", points=0, max_points=6, cases=9, passed=0)
    found = Finding(rule="leak", verdict=Verdict.MEMORY_LEAK, message="lost", case="x/x")
    right = record_of().rules[0]
    leaking = [
        outcome(f"append/hidden_{n}", visibility=Visibility.HIDDEN, passed=True, findings=(0,)) for n in range(40)
    ]
    record = record_of(*leaking, rules=(replace(right, points=6), leak), findings=(found,))
    report = text.render(record)

    assert "Hidden cases cost 6 points in all" in report
    assert "  leak: the title of append/hidden_0; " in report
    assert "append/hidden_4" not in report
    assert "and 36 more" in report
    assert "handout: Task 5" in report
    assert "append/hidden_12" not in text.render(record, everything=True)


def test_what_only_hidden_cases_show_leads_to_the_handout() -> None:
    """No public case of the rule fails, so none is to be fixed first; where one does it is the way."""
    hidden = outcome(
        "append/hidden", visibility=Visibility.HIDDEN, handout=("Part 2.2/offset",), clauses=("it is kv_count % 16",)
    )
    alone, both = text.render(record_of(hidden)), text.render(record_of(outcome("append/public"), hidden))

    assert "fix those first" not in alone
    assert "  address: the title of append/hidden\n    Part 2.2: it is kv_count % 16\n" in alone
    assert "Public cases of the same rules fail too; fix those first." in both
    assert "it is kv_count % 16" not in both
