"""A class as one file: our own table, one as Gradescope exports it, one that Canvas imports, the records themselves.

A table has a row for each student; the submission of a group has one for each member. What a case does is in no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from grader.record import Record, Student
from grader.report.document import Document, as_csv, as_json, joined
from grader.report.why import judged
from grader.report.words import NOT_RUN, part_of
from grader.verdict import RuleScore

__all__ = ["MISSING", "canvas", "gradescope_export", "json_lines", "own"]

_Row = list[str | float | None]
MISSING = "missing"
"""In the place of a verdict: in the roster, but nothing was handed in."""


def own(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
    """Everything about a submission in one line: verdict, points, the most likely cause, points by rule."""
    first, rest = _peeked(records)
    rules = [rule.rule for rule in _rules(first)]
    about = ["submission", "name", "sid", "email", "section", "verdict", "score", "max_score", "diagnosis"]
    about += ["complete", "overrides", *(["part"] if first is not None and first.public_only else [])]

    def rows() -> Iterator[_Row]:
        yield [*about, *rules]
        for record in rest:
            cause = record.diagnosis.rule if record.diagnosis is not None else ""
            points = _points(record, rules)
            for one in _students(record):
                who: _Row = [record.submission.name, one.name, one.sid, one.email, one.section]
                complete = "yes" if record.complete else "no"
                yield [
                    *who,
                    record.verdict.value,
                    record.score,
                    record.max_score,
                    cause,
                    complete,
                    _decided(record),
                    *([part_of(record)] if "part" in about else []),
                    *points,
                ]
        for one in missing:
            empty: _Row = [None] * (len(about) + len(rules) - 6)
            yield ["", one.name, one.sid, one.email, one.section, MISSING, *empty]

    return as_csv(rows())


def gradescope_export(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
    """The columns of a Gradescope export. What only Gradescope knows (times, views) stays empty."""
    first, rest = _peeked(records)
    rules = [rule.rule for rule in _rules(first)]
    titles = [
        f"{number}: {rule.rule} ({float(rule.max_points)} pts)" for number, rule in enumerate(_rules(first), start=1)
    ]
    about = ["First Name", "Last Name", "SID", "Email", "Sections", "Total Score", "Max Points", "Status"]
    about += ["Submission ID", "Submission Time", "Lateness (H:M:S)", "View Count", "Submission Count"]

    def rows() -> Iterator[_Row]:
        yield [*about, *titles]
        for record in rest:
            status = "Ungraded" if record.score is None else "Graded"
            points = _points(record, rules)
            for one in _students(record):
                known: _Row = [record.score, record.max_score, status, record.submission.name, None, None, None, None]
                yield [*_names(one), one.sid, one.email, one.section, *known, *points]
        for one in missing:
            empty: _Row = [None] * (5 + len(rules))
            full = first.max_score if first is not None else None
            yield [*_names(one), one.sid, one.email, one.section, None, full, "Missing", *empty]

    return as_csv(rows())


def canvas(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
    """What Canvas imports: it finds a student by SIS ID or login, else by name. No score leaves a cell empty."""
    first, rest = _peeked(records)

    def rows() -> Iterator[_Row]:
        yield ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", _column(first)]
        if first is not None:
            yield ["    Points Possible", None, None, None, None, first.max_score]
        for record in rest:
            for one in _students(record):
                yield [one.name or record.submission.name, None, one.sid, one.email, one.section, record.score]
        for one in missing:
            yield [one.name, None, one.sid, one.email, one.section, None]

    return as_csv(rows())


def json_lines(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:  # noqa: ARG001 - no record
    """The records, one a line, for programs."""
    return joined(as_json(record, one_line=True) for record in records)


def _decided(record: Record) -> str:
    """What people decided after the grading."""
    return "; ".join(
        f"{one.rule}: {one.points} instead of {one.was} ({one.by}: {one.reason})" for one in record.overrides
    )


def _column(first: Record | None) -> str:
    """The name of the column of points."""
    if first is None:
        return "score"
    return f"{first.lab}, public part: {NOT_RUN}" if first.public_only else first.lab


def _peeked(records: Iterable[Record]) -> tuple[Record | None, Iterator[Record]]:
    """The first record, which says what the columns are, and all of them. No more than one is held."""
    walk = iter(records)
    first = next(walk, None)
    return first, chain([first] if first is not None else [], walk)


def _rules(record: Record | None) -> list[RuleScore]:
    return judged(record) if record is not None else []


def _points(record: Record, rules: list[str]) -> _Row:
    points = {rule.rule: rule.points for rule in record.rules} if record.score is not None else {}
    return [points.get(rule) for rule in rules]


def _students(record: Record) -> tuple[Student, ...]:
    return record.submission.students or (Student(name=""),)


def _names(student: Student) -> tuple[str, str]:
    """First and last name, from `Last, First` or `First Last`."""
    last, comma, first = student.name.partition(",")
    if not comma:
        first, _, last = student.name.rpartition(" ")
    return first.strip(), last.strip()
