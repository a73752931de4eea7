"""The results of a class as one file: the grader's own table, a Gradescope export, a Canvas import, or all records.

A table has a row for each student; the submission of a group has one for each member. No table shows what cases do.
A table has the columns of all its records. A record that was judged by another rubric leaves cells empty; an empty cell
does not mean 0 points.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from grader.core.record import Record, Student
from grader.report.by_rule import judged
from grader.report.document import Document, as_csv, as_json, joined
from grader.report.phrases import NOT_RUN, decisions_of, kept_from, needs_person, part_of

K = TypeVar("K")
_Row = list[str | float | None]
MISSING = "missing"
"""Used instead of a verdict if a student is in the roster, but submitted nothing."""


@dataclass(frozen=True, slots=True)
class _GradeTable(Generic[K]):
    """Rows with the same first columns, then columns of points, which are known once all records have been read."""

    about: Sequence[str]
    rows: list[tuple[_Row, Mapping[K, int], str]] = field(default_factory=list)
    """For each row: the first cells, the points, and the text of the last column."""

    def columns(self) -> list[K]:
        """Return the columns of points, in the order in which they first occur in the records."""
        return list(dict.fromkeys(key for _, points, _ in self.rows for key in points))

    def document(self, titles: Sequence[str], remark: str = "") -> Document:
        """Return the whole table.

        `titles` are the headings of the columns of points. `remark` is the heading of a last column, which is written
        only when some row has a text for it.
        """
        columns, last = self.columns(), bool(remark) and any(text for *_, text in self.rows)
        rows = [[*about, *map(points.get, columns), *[text] * last] for about, points, text in self.rows]
        return as_csv([[*self.about, *titles, *[remark] * last], *rows])


def own(
    records: Iterable[Record], missing: Iterable[Student] = (), distances: Mapping[str, str] | None = None
) -> Document:
    """Return the grader's own table: in each row verdict, points, the most likely cause, and points by rule.

    `distances` maps a submission's name to the number of changes that make it right; None omits this column.

    A last column, if any row needs it, says what the score leaves out, why there is no score, or from which earlier run
    the result is kept.
    """
    about = ["submission", "name", "sid", "email", "section", "verdict", "score", "max_score", "diagnosis"]
    table: _GradeTable[str] = _GradeTable([*about, "complete", "overrides", *["distance"] * (distances is not None)])
    for record in records:
        cause = record.first_cause.rule if record.first_cause is not None else ""
        result: _Row = [record.verdict.value, record.score, record.max_score, cause]
        result += ["yes" if record.complete else "no", _decided(record)]
        result += [distances.get(record.submission.name, "")] if distances is not None else []
        points = {rule: points for (rule, _), points in _points(record).items()}
        for student in _students(record):
            about_it = [record.submission.name, *_known(student), *result]
            table.rows.append((about_it, points, _remark(part_of(record) or needs_person(record), kept_from(record))))
    for student in missing:
        table.rows.append((["", *_known(student), MISSING, *[None] * (len(table.about) - 6)], {}, ""))
    return table.document(table.columns(), "remark")


def gradescope_export(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
    """Return a table with the columns of a Gradescope export.

    What only Gradescope knows (times, views) stays empty. An export has no column for decisions of people, for why a
    submission needs a person, and for the earlier run of a result; these are in an additional last column, if any.
    """
    about = ["First Name", "Last Name", "SID", "Email", "Sections", "Total Score", "Max Points", "Status"]
    about += ["Submission ID", "Submission Time", "Lateness (H:M:S)", "View Count", "Submission Count"]
    table: _GradeTable[tuple[str, int]] = _GradeTable(about)
    full = None
    for record in records:
        full = max(full or 0, record.max_score)
        status = "Ungraded" if record.score is None else "Graded"
        result: _Row = [record.score, record.max_score, status, record.submission.name, None, None, None, None]
        for student in _students(record):
            remark = _remark(_decided(record) or needs_person(record), kept_from(record))
            table.rows.append(([*_person(student), *result], _points(record), remark))
    for student in missing:
        table.rows.append(([*_person(student), None, full, "Missing", None, None, None, None, None], {}, ""))
    titles = [f"{number}: {rule} ({float(most)} pts)" for number, (rule, most) in enumerate(table.columns(), start=1)]
    return table.document(titles, "Remarks")


_TWO_CHARACTERS = "[\u3400-\u9fff\uac00-\ud7a3]{2}"
"""A whole name of two Chinese or Korean characters: the family name, then the given name."""

_NO_ASSIGNMENT = "Override Grade: decided by people"
"""Canvas does not treat a column as an assignment if its name has "Override Grade" (NON_ASSIGNMENT_COLUMN_HEADERS)."""


def canvas(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:  # noqa: ARG001 - no score, no row
    """Return a table that Canvas imports. Canvas finds a student by SIS ID or login, else by name.

    A student without a score has no row, because an empty cell would delete the grade in Canvas (`no_change_to_value?`
    in its lib/gradebook_importer.rb, the source of all statements about Canvas here).
    """
    table: _GradeTable[tuple[str, int]] = _GradeTable(["Student", "ID", "SIS User ID", "SIS Login ID", "Section"])
    full: dict[tuple[str, int], int] = {}
    for record in records:
        if record.score is None:  # it does not know whether hidden cases were to be run, so its column may be another
            continue
        column = _assignment(record), record.max_score
        full[column] = record.max_score
        for student in _students(record):
            who: _Row = [student.name or record.submission.name, None, student.sid, student.email, student.section]
            table.rows.append((who, {column: record.score or 0}, _decided(record)))
    if full:
        table.rows.insert(0, (["    Points Possible", None, None, None, None], full, ""))
    labs = [lab for lab, _ in full]
    titles = [lab if labs.count(lab) == 1 else f"{lab} ({most} points)" for lab, most in table.columns()]
    return table.document(titles or ["score"], _NO_ASSIGNMENT)


def json_lines(records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:  # noqa: ARG001 - no record
    """Return the records, one per line, for programs."""
    return joined(as_json(record, one_line=True) for record in records)


def _remark(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _decided(record: Record) -> str:
    return "; ".join(decisions_of(record))


def _assignment(record: Record) -> str:
    """Return the name of the column in Canvas that gets the record's points."""
    return f"{record.lab}, public part: {NOT_RUN}" if record.public_only else record.lab


def _points(record: Record) -> dict[tuple[str, int], int]:
    """Map (rule, its maximum) to the points of the rule; {} if there is no score."""
    rules = judged(record) if record.score is not None else []
    return {(rule.rule, rule.max_points): rule.points for rule in rules}


def _students(record: Record) -> tuple[Student, ...]:
    return record.submission.students or (Student(name=""),)


def _known(student: Student) -> _Row:
    return [student.name, student.sid, student.email, student.section]


def _person(student: Student) -> _Row:
    """Return first name, last name, SID, email and section.

    The name is read as `Last, First`, as `First Last`, or as two Chinese or Korean characters. Any other single word
    becomes the first name, because it is unknown which part of it is the family name.
    """
    last, comma, first = student.name.partition(",")
    if not comma and re.fullmatch(_TWO_CHARACTERS, student.name.strip()):
        last, first = list(student.name.strip())
    elif not comma:
        before, _, word = student.name.strip().rpartition(" ")
        first, last = (before, word) if before else (word, "")
    return [first.strip(), last.strip(), student.sid, student.email, student.section]
