"""Records made by hand for the tests of reports: failed cases, and cases with secrets."""

from __future__ import annotations

from dataclasses import replace

from grader.core.errors import OptionalStage, StageFailure
from grader.core.record import Record, Submission, with_costs
from grader.core.verdict import (
    Cause,
    Finding,
    Outcome,
    RuleScore,
    SourceLine,
    StepShown,
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
    failed = Outcome(
        case=case, title=f"the title of {case}", rule="address", handout=("Part 2.2/offset",), weight=1,
        visibility=Visibility.PUBLIC, verdict=Verdict.WRONG_ANSWER, passed=False, clean=False, steps=steps(5),
    )  # fmt: skip
    return replace(failed, **changes)  # type: ignore[arg-type]


def finding(case: str, **changes: object) -> Finding:
    """Return what is wrong in such a case."""
    wrong = Finding(
        rule="address", verdict=Verdict.WRONG_ANSWER, message="block 0, slot 2 is untouched, expected 3",
        kind="written", case=case, operation=3, field="block 0, slot 2", expected="3", actual="untouched",
    )  # fmt: skip
    return replace(wrong, **changes)  # type: ignore[arg-type]


def record_of(*outcomes: Outcome, one_cause: bool = True, **changes: object) -> Record:
    """Return a record of these cases, with five of six points lost.

    A failing case without a finding has that of `finding`. Unless other causes are given, all failing cases have one
    cause, or each has its own.
    """
    findings = [*changes.pop("findings", ())]  # type: ignore[misc]
    cases = []
    for case in outcomes:
        without = not case.findings and case.verdict is not Verdict.ACCEPTED
        cases.append(replace(case, findings=(len(findings),)) if without else case)
        findings += [finding(case.case)] if without else []
    record = Record(
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
        outcomes=tuple(cases),
        findings=tuple(findings),
    )
    return with_costs(replace(record, **{"causes": causes_of(record, one_cause=one_cause), **changes}))  # type: ignore[arg-type]


def causes_of(record: Record, *, one_cause: bool) -> tuple[Cause, ...]:
    """Return a cause for all failing cases of a record, or one for each."""
    failing = [outcome for outcome in record.outcomes if outcome.findings and outcome.verdict is not Verdict.ACCEPTED]
    groups = [failing] if one_cause and failing else [[outcome] for outcome in failing]
    return tuple(
        cause_of(record.findings[group[0].findings[0]], *(outcome.case for outcome in group)) for group in groups
    )


def cause_of(first: Finding, *cases: str) -> Cause:
    """Return the cause of these cases, the first of which failed for this finding."""
    return Cause(
        rule=first.rule, verdict=first.verdict, sentence=first.message, hint=first.hint, lines=first.source,
        cases=cases, call="append_kv", operation=first.operation or 0,
    )  # fmt: skip


def secret_case() -> Outcome:
    """Return a hidden case in which everything but title and rule contains the word or the number of a secret."""
    shown = StepShown(
        number=3, line=777, call="secret_call 31337", expected="31337", actual="secret_value",
        comment="secret_comment", note="secret_note",
    )  # fmt: skip
    return outcome(
        "append/secret_name", title="a hidden title", visibility=Visibility.HIDDEN, steps=(shown,), findings=(0,),
    )  # fmt: skip


def secret_record(*others: Outcome) -> Record:
    """Return a record whose first cause comes from the hidden case."""
    secret = Finding(
        rule="address", verdict=Verdict.WRONG_ANSWER, kind="written",
        message="secret_field[31337] is secret_value, expected 31337",
        case="append/secret_name", operation=3, field="secret_field[31337]", expected="31337", actual="secret_value",
        source=(SourceLine(file="secret.c", line=31337),),
        hint="Look at the offset. It is 31337 here. See secret.c:31337.",
    )  # fmt: skip
    failure = StageFailure(stage=OptionalStage.LINES, error="secret_error: 31337 (secret.py:31337)")
    return record_of(secret_case(), *others, one_cause=False, findings=(secret,), failed_stages=(failure,))
