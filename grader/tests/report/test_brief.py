"""The report on one screen: what it shows of causes, points and hidden cases, and that it never becomes long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.core.record import Environment, Override, Submission, UsedTool
from grader.core.verdict import (
    Advice,
    Cause,
    Finding,
    RuleScore,
    SourceLine,
    Tool,
    Verdict,
    Visibility,
)
from grader.report import text
from grader.tests.support.handmade import outcome, record_of, steps


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


@pytest.mark.parametrize("width", [40, 80, 132])
def test_no_submission_makes_a_report_longer_than_80_lines(width: int) -> None:
    """However many causes, rules, words, notes, prints and pieces of advice it has."""
    long = "many words " * 300
    source = tuple(SourceLine(file="f" * 300, line=n, function="g" * 300) for n in range(9))
    found = Finding(rule="address", verdict=Verdict.MEMORY_ERROR, message=long, case="x", operation=3, source=source)
    cases = [
        outcome(
            f"append/{'x' * 200}{n}", title=long, findings=(0,),
            steps=tuple(replace(step, comment=long, note=long) for step in steps(60)),
        )
        for n in range(200)
    ]  # fmt: skip
    rules = tuple(replace(record_of().rules[0], rule=f"{'rule' * 20}{n}", title=long) for n in range(40))
    causes = tuple(
        Cause(rule="address", verdict=Verdict.MEMORY_ERROR, sentence=long, clause=long, hint=long, cases=(case.case,))
        for case in cases
    )
    record = record_of(
        *cases, rules=rules, findings=(found,), causes=causes, output="line\n" * 900,
        submission=Submission(name="name" * 900, notes=(long,) * 30),
        advice=(Advice(kind="x", message=long),) * 20,
        environment=Environment(
            command="gcc -c " + "a.c " * 300 + "-o a.o", tools=(UsedTool(tool=Tool.BUILD, name="gcc", version=long),)
        ),
        overrides=(Override(submission="x", rule="address", points=1, reason=long, by=long),) * 18,
    )  # fmt: skip
    report = text.render(record, width=width)
    building = Finding(rule="compile", verdict=Verdict.COMPILE_ERROR, message=long, field=long)
    broken = record_of(findings=tuple(replace(building, message=f"{n} {long}") for n in range(90)), score=0)

    assert report.count("\n") <= 80
    assert text.render(broken, width=width).count("\n") <= 80
