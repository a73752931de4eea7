"""What a report shows of cases and causes, and what it keeps for itself."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from grader.core.record import Environment, Submission, UsedTool
from grader.core.verdict import (
    Advice,
    Finding,
    SourceLine,
    Tool,
    Verdict,
)
from grader.report import text
from grader.report.trace import called_from
from grader.tests.support.handmade import finding, outcome, record_of, secret_record, steps


def test_a_hidden_case_shows_title_and_rule_only() -> None:
    """No call, value, comment, line or name of it, and of the diagnosis only rule and harmless hint."""
    report = text.render(secret_record(outcome("append/public")))

    assert "a hidden title" in report
    assert "Look at the offset." in report
    assert not re.search(r"secret|31337|777", report)


def test_an_instructor_sees_hidden_cases() -> None:
    """The same record, in full, with a word that students do not see it."""
    report = text.render(secret_record(), audience="instructor")
    everything = text.render(secret_record(), audience="instructor", everything=True)

    for shown in ("secret_call 31337", "append/secret_name", "hidden from students"):
        assert shown in report
        assert shown in everything
    assert "secret_field[31337]" in everything


def test_an_unknown_audience_is_refused() -> None:
    """A slip must not show hidden cases."""
    with pytest.raises(ValueError, match="teacher"):
        text.render(record_of(), audience="teacher")


def test_cases_with_one_cause_are_shown_once() -> None:
    """One of them in full, a few by name, the rest as a number."""
    cases = [outcome(f"append/case_{n}") for n in (4, 3, 2, 1, 0)]

    for report in (text.render(record_of(*cases)), text.render(record_of(*cases), everything=True)):
        assert report.count("the title of") == 1
        assert "the title of append/case_4" in report
        assert "also seen append/case_3, append/case_2, append/case_1 and 1 more" in report
        assert "5 points in public cases" in " ".join(report.split())


def test_the_first_cause_stays_first_and_the_others_follow_by_cost() -> None:
    """What the report begins with is the first case in full, however little it costs."""
    cases = [outcome(f"append/{name}", weight=weight) for name, weight in (("first", 2), ("cheap", 1), ("dear", 4))]

    report = text.render(record_of(*cases, one_cause=False))

    assert "the title of append/first" in report
    assert report.index("append/first") < report.index("append/dear") < report.index("append/cheap")


def test_a_long_trace_is_folded_around_the_bad_operation() -> None:
    """The beginning, what leads to the bad operation, and a little behind it."""
    long = outcome("append/long", steps=steps(60), findings=(0,))
    report = text.render(record_of(long, findings=(finding("append/long", operation=50),)))

    assert "operations 4 to 43 are left out" in report
    assert "operations 53 to 60 are left out" in report
    assert re.search(r">>> 50  append_kv 1 50 +0 +0\n +wrong +not what the call returned", report)


def test_an_operation_beyond_the_kept_steps_is_still_explained() -> None:
    """The difference is told though its operation is not in the list."""
    long = outcome("append/long", findings=(0,))
    report = text.render(record_of(long, findings=(finding("append/long", operation=500),)))

    assert "operation 500: block 0, slot 2 is untouched" in report


def test_pokes_are_explained_below_their_operation() -> None:
    """One sentence on what the grader did."""
    poked = replace(steps(5)[1], call="move_l2 1 0 3", expected="", actual="", note="The grader moves a table.")
    report = text.render(record_of(outcome("fork/poked", steps=(steps(1)[0], poked, *steps(5)[2:]))))

    assert re.search(r" 2  move_l2 1 0 3 *\n +The grader moves a table\.\n", report)


def test_a_repeated_line_says_its_comment_once() -> None:
    """A `repeat` of the case file is many operations with one comment."""
    repeated = tuple(replace(step, line=9, comment="the same words") for step in steps(5))
    report = text.render(record_of(outcome("append/repeat", steps=repeated)))

    assert report.count("the same words") == 1


def test_a_crash_is_shown_at_its_operation_with_its_line() -> None:
    """The reply is a crash, the rest was not reached, and the calls that led there are named."""
    source = (SourceLine(file="llm_memory.c", line=9, function="f"), SourceLine(file="llm_memory.c", line=30))
    wrong = Finding(
        rule="memory-error", verdict=Verdict.RUN_TIME_ERROR, message="free_sequence crashes", kind="crash",
        case="free/crash", operation=2, source=source,
    )  # fmt: skip
    calls = tuple(replace(step, actual="0" if step.number < 2 else None) for step in steps(3))
    crash = outcome("free/crash", findings=(0,), steps=calls, verdict=Verdict.RUN_TIME_ERROR)
    report = text.render(record_of(crash, findings=(wrong,)))

    assert re.search(r">>> 2  append_kv 1 2 +0 +crash\n", report)
    assert "your code llm_memory.c:9 in f, called from llm_memory.c:30\n" in report


def test_lines_without_functions_are_no_stack() -> None:
    """As those of two calls that have no order."""
    lines = [SourceLine(file="x.py", line=line) for line in (9, 30)]

    assert called_from(lines) == "x.py:9 and x.py:30"


def test_a_hang_is_shown_as_a_call_that_never_returned() -> None:
    """The word stands where the reply would."""
    wrong = Finding(
        rule="list", verdict=Verdict.TIME_LIMIT_EXCEEDED, message="it does not come back", kind="hang",
        case="free/hang", operation=2,
    )  # fmt: skip
    calls = tuple(replace(step, actual="0" if step.number < 2 else None) for step in steps(3))
    hang = outcome("free/hang", findings=(0,), steps=calls, verdict=Verdict.TIME_LIMIT_EXCEEDED)
    report = text.render(record_of(hang, findings=(wrong,), verdict=Verdict.TIME_LIMIT_EXCEEDED))

    assert "alice: a call never returns, 1 of 6 points\n" in report
    assert re.search(r">>> 2  append_kv 1 2 +0 +never\n", report)


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


def test_compiler_messages_stand_as_the_compiler_prints_them() -> None:
    """Place, message, then what it means; the same message is not repeated."""
    wrong = Finding(
        rule="compile", verdict=Verdict.COMPILE_ERROR, tool=Tool.BUILD, kind="compiler",
        message="unused variable 'n' [-Werror=unused-variable]", field="Delete it, or use it.",
        source=(SourceLine(file="llm_memory.c", line=8, column=5),),
    )  # fmt: skip
    record = record_of(
        findings=(wrong, wrong), verdict=Verdict.COMPILE_ERROR, score=0, would_score=97
    )  # fmt: skip

    assert text.render(record).count("  llm_memory.c:8:5: unused variable 'n' [-Werror=unused-variable]\n") == 1
    assert "      Delete it, or use it.\n" in text.render(record)


def test_only_instructors_are_told_what_it_would_have_scored() -> None:
    """The number never counts, so a student does not see it."""
    wrong = Finding(rule="compile", verdict=Verdict.COMPILE_ERROR, message="it does not compile")
    record = record_of(findings=(wrong,), verdict=Verdict.COMPILE_ERROR, score=0, would_score=97)

    assert "97" not in text.render(record)
    assert "would have scored 97" in text.render(record, audience="instructor")


def test_what_valgrind_did_not_check_is_said() -> None:
    """A report without Valgrind says what nobody looked at."""
    report = text.render(record_of(outcome("append/x"), unchecked="Valgrind did not run. Not checked: all."))

    assert "Valgrind did not run. Not checked:" in report


def test_a_failure_of_ours_blames_nobody() -> None:
    """A judge error has no score and says whose fault it is."""
    report = text.render(record_of(verdict=Verdict.JUDGE_ERROR, score=None))

    assert "alice: not graded, no score\n" in report
    assert "not your fault" in report


def test_the_way_to_see_a_case_can_be_copied() -> None:
    """Case and program as commands of a shell, the path quoted."""
    command = "gcc -std=c11 -O2 llm_memory.c repro.c -o repro && ./repro"
    record = record_of(
        outcome("append/x"),
        submission=Submission(name="my work", source_file="llm_memory.c"),
        environment=Environment(reproduce=command),
    )

    report = text.render(record)

    assert "    scripts/grade repro 'my work' append/x > repro.c\n" in report
    assert "    gcc -std=c11 -O2 llm_memory.c repro.c -o repro && ./repro\n" in report


def test_long_commands_go_on_behind_a_backslash() -> None:
    """Copied from a narrow terminal they are still one command."""
    command = f"gcc {'-Wall ' * 20}-c llm_memory.c -o llm_memory.o"
    report = text.render(
        record_of(outcome("append/x"), environment=Environment(command=command)), width=50, everything=True
    )

    assert command in re.sub(r" \\\n +", " ", report)


def test_a_long_output_is_cut() -> None:
    """Twenty lines are shown, the rest is counted."""
    report = text.render(record_of(outcome("append/x"), output="line\n" * 50))

    assert report.count("    line\n") == 20
    assert "... and 30 more lines" in report


def test_an_interrupted_grading_says_so() -> None:
    """Nobody should take its record for a result."""
    assert "did not come to its end" in text.render(record_of(outcome("append/x"), complete=False))


def test_advice_stands_by_itself_and_says_that_it_costs_nothing() -> None:
    """Each with its line; a report without advice has no such section."""
    advice = Advice(kind="needless-call", message="fopen is not needed.", source=(SourceLine(file="a.c", line=7),))
    given = replace(record_of(outcome("append/x")), advice=(advice,) * 9)

    report = text.render(given)

    assert "Advice" not in text.render(record_of(outcome("append/x")))
    assert "Costs no point." in report
    assert report.count("a.c:7: fopen is not needed.") == 8
    assert "and 1 more" in report
