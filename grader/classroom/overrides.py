"""Overrides: what people decided after the grading about points of a rule of one submission, with reason and name.

They are in a TOML file, one table [[override]] for each: submission, rule, points (what the rule counts now), reason,
by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import fields, replace
from pathlib import Path

from grader.assignment.input_file import TomlTable, cut, short
from grader.core.case import Number
from grader.core.errors import ClassFileError
from grader.core.losses import weighed
from grader.core.record import Override, Record
from grader.core.rubric import Rubric
from grader.core.verdict import Verdict

_TABLE = "override"


def load(path: Path, rubric: Rubric, submissions: Collection[str]) -> tuple[Override, ...]:
    """Load the overrides of a file, for these submissions. Raises `ClassFileError` with all mistakes."""
    file = TomlTable.read(path, ClassFileError)
    file.check_keys([_TABLE])
    overrides: dict[tuple[str, str], Override] = {}
    known = dict.fromkeys(submissions)
    for table in file.rows(_TABLE):
        override = _override(table, rubric, known)
        about = override.submission, override.rule
        if all(about) and about in overrides:
            table.complain("rule", f"{override.rule} of {cut(override.submission)} was decided above already")
        overrides[about] = override
    file.check()
    return tuple(overrides.values())


def applied(record: Record, overrides: Iterable[Override]) -> Record:
    """Return the record with its overrides; those of other submissions and of rules that it lacks change nothing.

    Its verdict is accepted exactly when it has all points, from the grading or from people.
    """
    decided = {override.rule: override for override in overrides if override.submission == record.submission.name}
    recorded = tuple(replace(decided[rule.rule], was=rule.points) for rule in record.rules if rule.rule in decided)
    if not recorded or record.score is None:
        return record
    rules = tuple(
        replace(rule, points=min(decided[rule.rule].points, rule.max_points)) if rule.rule in decided else rule
        for rule in record.rules  # a rule of which no case was chosen is worth nothing
    )
    score = sum(rule.points for rule in rules)
    verdict = record.verdict
    if score == record.max_score:
        verdict = Verdict.ACCEPTED
    elif verdict is Verdict.ACCEPTED:
        verdict = Verdict.WRONG_ANSWER
    return weighed(replace(record, rules=rules, score=score, verdict=verdict, overrides=recorded))


def _override(table: TomlTable, rubric: Rubric, submissions: Collection[str]) -> Override:
    table.check_keys([field.name for field in fields(Override) if field.name != "was"])
    rule = table.choice("rule", [rule.id for rule in rubric.rules])
    most = rubric.rule(rule).points if rule else rubric.max_score
    submission = table.string("submission", '"...", its name in the store')
    if submission and submission not in submissions:
        hint = table.hint(submission, submissions)
        table.complain("submission", f"there is no submission {short(submission)}{hint}")
    return Override(
        submission=submission,
        rule=rule,
        points=table.number("points", Number("points", 0, most), needed=True) or 0,
        reason=table.string("reason", '"...", which the student will read'),
        by=table.string("by", '"...", who decided it'),
    )
