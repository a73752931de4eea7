"""Wording that several formats share: results, points, decisions of people, what a report lacks, how it was graded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grader.core.errors import OptionalStage
from grader.core.record import NEEDS_PERSON, Override, Record
from grader.core.verdict import NOT_IMPORTED, Audience, Cause, Feedback, RuleScore, Tool, Verdict

NOT_RUN = "hidden cases not run here"
NEEDS_PERSON_WORDS = "needs a person"
NO_FILE = "source"
"""The kind of a finding that says why there is no file."""

_WORDS = {
    Verdict.ACCEPTED: "accepted",
    Verdict.COMPILE_ERROR: "does not compile",
    Verdict.WRONG_ANSWER: "wrong answer",
    Verdict.RUN_TIME_ERROR: "it crashes",
    Verdict.TIME_LIMIT_EXCEEDED: "a call never returns",
    Verdict.MEMORY_ERROR: "memory error",
    Verdict.MEMORY_LEAK: "memory leak",
    Verdict.REJECTED: "rejected until somebody has looked at it",
    Verdict.JUDGE_ERROR: "not graded",
}

_NOT_DONE = {
    OptionalStage.LOST_MEMORY: "Where memory was lost could not be found",
    OptionalStage.LINES: "Lines could not be found",
    OptionalStage.EXPLANATIONS: "Hints could not be written",
    OptionalStage.ADVICE: "Advice could not be looked for",
    OptionalStage.SEARCH: "Nothing could be searched beyond the cases",
    OptionalStage.PRINTS: "What the program printed could not be read",
    OptionalStage.SOURCE: "The text of the source file could not be read",
    OptionalStage.PICTURES: "Pictures could not be drawn",
    OptionalStage.WOULD_SCORE: "What it would have scored could not be found",
}
_LESS = "This report shows less than usual, because a part of the grader failed. No point depends on that part."
_MOST_OF_ERROR = 200
_CLEARLY_SLOWER = 3


def result_of(record: Record) -> str:
    """Return the verdict in words."""
    kinds = {finding.kind for finding in record.build_findings}
    if NO_FILE in kinds:
        return "there is no file to grade"
    if NOT_IMPORTED in kinds:
        return "cannot be imported"
    if record.verdict is Verdict.COMPILE_ERROR and (record.outcomes or record.feedback is not Feedback.FULL):
        return "does not build as demanded"
    if needs_person(record):
        return NEEDS_PERSON_WORDS
    return "unfinished" if record.is_unfinished else _WORDS[record.verdict]


def needs_person(record: Record) -> str:
    """Return why the submission has no score until a person has looked at it; empty for any other record."""
    reasons = (finding.message for finding in record.findings if finding.kind == NEEDS_PERSON)
    return next((f"{NEEDS_PERSON_WORDS}: {reason}" for reason in reasons), "")


def kept_from(record: Record) -> str:
    """Return from which earlier run of the class the result is kept; "" if the submission is new in this run."""
    run = record.submission.kept_from
    return f"kept from run {run}: nothing newer was handed in" if run is not None else ""


def incomplete_of(record: Record) -> str:
    """Return the sentence that says why the report has no points; "" if the grading was completed."""
    if record.complete:
        return ""
    return needs_person(record) or "Its grading did not come to its end, so nothing is said of its points."


def no_points_of(record: Record) -> str:
    """Return the beginning of a sentence: what a record without a score means for its student's points."""
    if needs_person(record):
        return "No point is given or taken until a person has looked at it"
    return "This is not your fault: no point is given or taken"


def points_of(record: Record) -> str:
    """Return the score in words; a score of the public part is worded so that it is not mistaken for the final one."""
    if record.score is None:
        return "no score"
    points = f"{record.score} of {record.max_score} points"
    return f"public part: {points}; {NOT_RUN}" if record.public_only else points


def in_a_line(record: Record, audience: Audience) -> str:
    """Return result and points, and the rule and place to look at first, as far as this reader may see them."""
    parts = [f"{result_of(record)}, {points_of(record)}"]
    if record.build_findings and not record.verdict.is_ours:
        first = record.build_findings[0]
        parts.append(": ".join([first.rule, *map(str, first.source[:1])]))
    elif record.first_cause is not None and not record.verdict.passed:
        cause = record.first_cause
        hidden = record.outcome(cause.cases[0]).hidden_from(audience)
        parts.append(": ".join([cause.rule, *(() if hidden else map(str, cause.lines[:1]))]))
    return "; ".join(parts)


def part_of(record: Record) -> str:
    """Return the remark on a score of the public part, for a format with a separate field for the score; else ""."""
    return points_of(record) if record.public_only and record.score is not None else ""


def all_pass(record: Record) -> str:
    """Return a sentence saying that nothing is wrong, with the number of cases."""
    count = len(record.outcomes)
    if record.public_only:
        return f"All {count} public cases that were run pass, and cost no point. Hidden cases were not run."
    hidden = sum(outcome.visibility == "hidden" for outcome in record.outcomes)
    cases = f"All {count} cases pass" + (f", {hidden} hidden ones among them" if hidden else "")
    looked_at = [rule for rule in record.rules if rule.max_points or rule.cases]  # `--case` may leave out rules
    if len(looked_at) < len(record.rules):
        return f"{cases}; they look at {len(looked_at)} of {len(record.rules)} rules, and those have full marks."
    return f"{cases}, and all {len(record.rules)} rules have full marks."


def cost_of(cause: Cause) -> str:
    """Return what a cause costs. The number of its cases says nothing about the cost, so reports do not show it."""
    return f"costs {points_lost(cause.points)}"


def points_lost(lost: float) -> str:
    """Return a cost in words: a whole number of points, or "less than a point" if it rounds to 0."""
    return counted(round(lost), "point") if round(lost) else "less than a point"


def counted(number: int, word: str) -> str:
    """Return the number with its noun: `1 case`, `2 cases`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def withheld_of(score: RuleScore) -> str:
    """Return why points of a rule are withheld although no finding cost them; "" if none are withheld."""
    if not score.withheld or score.points == score.max_points:
        return ""
    return f"nothing found; {counted(score.withheld, 'point')} held back until more of the other rules are right"


def failures_of(record: Record, audience: Audience) -> Iterator[str]:
    """Yield what the report lacks because a stage of the grading failed. Students do not see the stage's error."""
    if audience is Audience.INSTRUCTOR:
        for failure in record.failed_stages:
            yield f"{_NOT_DONE[failure.stage]}: {failure.error[:_MOST_OF_ERROR]}"
    if record.failed_stages:
        yield _LESS


def decisions_of(record: Record) -> list[str]:
    """Return one sentence for each decision of people. All points in a report are those after the decisions."""
    return [said_of(override) for override in record.overrides]


def said_of(override: Override) -> str:
    """Return a sentence with the points, who gave them, and why."""
    points = f"{counted(override.points, 'point')} instead of {override.was}"
    return f"{override.rule}: {points}, decided by {override.by}: {override.reason}"


def decision_of(record: Record, rule: str) -> str:
    """Return a sentence with the decision of people about one rule; "" if there is none."""
    return next((said_of(override) for override in record.overrides if override.rule == rule), "")


def graded_how(record: Record) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for the tools, the protection and the seed of a grading."""
    environment, protection = record.environment, record.protection
    active = f": {', '.join(protection.active)}" if protection.active else ""
    for label, text in (
        ("built by", environment.version(Tool.BUILD)),
        ("memory", _memory(record)),
        ("protection", f"{protection.level}{active}"),
        ("allowed", ", ".join(record.allowed)),
        ("lane", environment.lane),
        ("pace", slowness(environment.pace)),
        ("seed", str(record.seed)),
        ("grader", environment.grader),
    ):
        if text:
            yield label, text


def slowness(pace: float) -> str:
    """Return a sentence about a machine that is slower than usual; "" for any other machine."""
    times = f"{pace:.0f}" if pace > _CLEARLY_SLOWER else f"{pace:.1f}"
    return f"this machine is {times} times slower than usual, so time limits are longer" if pace > 1 else ""


def _memory(record: Record) -> str:
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    if not record.outcomes or checker is None:
        return record.unchecked if record.outcomes else ""
    return "; ".join(filter(None, (f"checked by {checker.version or checker.name}", record.unchecked)))


def repro_name(record: Record) -> str:
    """Return the file name for the program that `grade repro` writes, in the language of the submission."""
    return f"repro{Path(record.submission.source_file).suffix}"
