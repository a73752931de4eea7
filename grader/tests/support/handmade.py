"""Records made by hand for the tests of reports: failed cases, and cases with secrets."""

from __future__ import annotations

from dataclasses import replace

from grader.core.optional_stages import OptionalStage, StageFailure
from grader.core.record import Record, Submission, UsedTool
from grader.core.verdict import (
    Diagnosis,
    Finding,
    Outcome,
    OutcomeDifference,
    RuleScore,
    SourceLine,
    StepShown,
    Tool,
    Verdict,
    Visibility,
)


def steps(count: int, *, call: str = "append_kv 1 {0}") -> tuple[StepShown, ...]:
    """Return `count` successful operations."""
    return tuple(
        StepShown(number=n, line=n + 7, call=call.format(n), expected="0", actual="0") for n in range(1, count + 1)
    )


def outcome(case: str, **changes: object) -> Outcome:
    """Return the outcome of a public case that failed at the third of its five operations."""
    difference = OutcomeDifference(
        operation=3, line=10, call="append_kv 1 3", facet="written", field="block 0, slot 2",
        expected="3", actual="untouched",
    )  # fmt: skip
    made = Outcome(
        case=case, title=f"the title of {case}", rule="address", handout=("Part 2.2/offset",), weight=1,
        visibility=Visibility.PUBLIC, verdict=Verdict.WRONG_ANSWER, passed=False, clean=False,
        difference=difference, cause="address append_kv", steps=steps(5),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


TOOLS = (
    UsedTool(tool=Tool.BUILD, name="gcc", version="gcc 12"),
    UsedTool(tool=Tool.MEMORY_CHECKER, name="Valgrind", version="valgrind 3"),
)
"""What made findings."""


def record_of(*outcomes: Outcome, **changes: object) -> Record:
    """Return a record of these cases, with five of six points lost."""
    made = Record(
        lab="paged_kv",
        submission=Submission(name="alice", source_file="solution.c"),
        verdict=Verdict.WRONG_ANSWER,
        score=1,
        max_score=6,
        rules=(
            RuleScore(
                rule="address",
                title="the right place",
                handout="Task 4",
                points=1,
                max_points=6,
                cases=9,
                passed=2,
            ),
        ),
        outcomes=outcomes,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def secret_case() -> Outcome:
    """Return a hidden case in which everything but title and rule contains the word or the number of a secret."""
    difference = OutcomeDifference(
        operation=3, line=777, call="secret_call 31337", facet="written", field="secret_field[31337]",
        expected="31337", actual="secret_value",
    )  # fmt: skip
    shown = StepShown(
        number=3, line=777, call="secret_call 31337", expected="31337", actual="secret_value",
        comment="secret_comment", note="secret_note",
    )  # fmt: skip
    return outcome(
        "append/secret_name", title="a hidden title", visibility=Visibility.HIDDEN, difference=difference,
        cause="secret_cause", steps=(shown,), findings=(0,),
    )  # fmt: skip


def secret_record(*others: Outcome) -> Record:
    """Return a record whose diagnosis comes from the hidden case."""
    finding = Finding(
        rule="address", verdict=Verdict.WRONG_ANSWER, message="secret_message 31337",
        case="append/secret_name",
        operation=3, field="secret_field[31337]", source=(SourceLine(file="secret.c", line=31337),),
    )  # fmt: skip
    diagnosis = Diagnosis(
        rule="address", handout="Task 4", case="append/secret_name",
        operation=3, line=777,
        source_line=SourceLine(file="secret.c", line=31337), summary="secret_summary",
        hint="Look at the offset. It is 31337 here. See secret.c:31337.",
    )  # fmt: skip
    failure = StageFailure(stage=OptionalStage.LINES, error="secret_error: 31337 (secret.py:31337)")
    return record_of(secret_case(), *others, findings=(finding,), diagnosis=diagnosis, failed_stages=(failure,))
