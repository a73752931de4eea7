"""What a report shows of cases and causes, and what it keeps for itself."""

from __future__ import annotations

import re
from dataclasses import replace

from grader.core.record import Environment, Submission, UsedTool
from grader.core.verdict import (
    Advice,
    Finding,
    SourceLine,
    Tool,
    Verdict,
)
from grader.report import text
from grader.tests.support.handmade import finding, outcome, record_of, secret_record


def test_a_hidden_case_shows_title_and_rule_only() -> None:
    """No call, value, comment, line or name of it, and of the diagnosis only rule and harmless hint."""
    report = text.render(secret_record(outcome("append/public")))

    assert "a hidden title" in report
    assert "Look at the offset." in report
    assert not re.search(r"secret|31337|777", report)


def test_an_operation_beyond_the_kept_steps_is_still_explained() -> None:
    """The difference is told though its operation is not in the list."""
    long = outcome("append/long", findings=(0,))
    report = text.render(record_of(long, findings=(finding("append/long", operation=500),)))

    assert "operation 500: block 0, slot 2 is untouched" in report


def test_hostile_text_cannot_reach_the_terminal() -> None:
    """Names, functions, messages and output of the student are escaped wherever they stand."""
    evil = "a\x1b[2J\u202eb\r\x07"
    wrong = Finding(
        rule="compile", verdict=Verdict.COMPILE_ERROR, tool=Tool.BUILD, kind="compiler", message=evil,
        field=evil, source=(SourceLine(file=evil, line=3, function=evil),),
    )  # fmt: skip
    record = record_of(
        outcome("append/x", title=evil), submission=Submission(name=evil, notes=(evil,)), findings=(wrong,),
        output=f"{evil}\n{evil}",
        environment=Environment(command=evil, tools=(UsedTool(tool=Tool.BUILD, name=evil, version=evil),)),
    )  # fmt: skip

    report = text.render(record)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", report)
    assert r"a\x1b[2J\u202eb\x0d\x07" in report


def test_a_failure_of_ours_blames_nobody() -> None:
    """A judge error has no score and says whose fault it is."""
    report = text.render(record_of(verdict=Verdict.JUDGE_ERROR, score=None))

    assert "alice: not graded, no score\n" in report
    assert "not your fault" in report


def test_advice_stands_by_itself_and_says_that_it_costs_nothing() -> None:
    """Each with its line; a report without advice has no such section."""
    advice = Advice(kind="needless-call", message="fopen is not needed.", source=(SourceLine(file="a.c", line=7),))
    given = replace(record_of(outcome("append/x")), advice=(advice,) * 9)

    report = text.render(given)

    assert "Advice" not in text.render(record_of(outcome("append/x")))
    assert "Costs no point." in report
    assert report.count("a.c:7: fopen is not needed.") == 8
    assert "and 1 more" in report
