"""The roster: who is in a class, from a CSV file of the instructor's or the list in a Gradescope export."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from grader.assignment.input_file import cut, read_text
from grader.classroom.database import DAMAGE, checked
from grader.core.errors import ClassFileError, FileProblem, StoreFailure
from grader.core.record import Student

if TYPE_CHECKING:
    from _csv import Reader


MOST_ROWS = 20_000
"""The most students of a class."""

MOST_VALUE = 1_000
"""The most characters of a name or another value."""

_MOST_CSV_BYTES = 4 << 20

_USER = "github_username"
_KEYS = ("folder", _USER)
"""The column that identifies the row: a submission's name, or a user name with which it ends (`hw3-jane`)."""
_SAYS_WHO = {"identifier": "sid"}
"""What GitHub Classroom calls the number, name or address by which a course knows a student."""
_COLUMNS = tuple(field.name for field in fields(Student))
_HEADING = "write a first line such as folder,name,sid,email,section"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Students by the name of their submission; several for a group."""

    rows: tuple[tuple[str, Student], ...]
    by_ending: bool = False
    """Whether the name is only the end of the submission's name."""

    def students(self, submissions: Iterable[str]) -> dict[str, tuple[Student, ...]]:
        """Return the students of each of these submissions; none for a submission that is not in the roster."""
        people: dict[str, list[Student]] = {}
        for name, student in self.rows:
            people.setdefault(_visible(name), []).append(student)
        names = self._names(submissions)
        return {submission: tuple(people[name]) if name in people else () for submission, name in names.items()}

    def missing(self, submissions: Iterable[str]) -> tuple[Student, ...]:
        """Return the students who submitted nothing."""
        named = set(self._names(submissions).values())
        return tuple(student for name, student in self.rows if _visible(name) not in named)

    def to_json(self) -> str:
        """Return the roster as JSON, as a run stores it."""
        return json.dumps(asdict(self))

    def _names(self, submissions: Iterable[str]) -> dict[str, str | None]:
        """Return the roster's name for each, or None; the longest, where one user's name is the end of another's."""
        exact = {_visible(name) for name, _ in self.rows}
        endings: dict[str, str] = {}
        for name in map(_visible, (name for name, _ in self.rows if self.by_ending and name)):
            endings.setdefault(name.lower(), name)
        names: dict[str, str | None] = {}
        for submission in submissions:
            visible = _visible(submission)
            ends = (endings.get(end) for end in _ends(visible.lower()))
            names[submission] = visible if visible in exact else next(filter(None, ends), None)
        return names


def _visible(name: str) -> str:
    """What a reader sees of a name: a Mac's zip writes an accent as a letter of its own, a spreadsheet adds marks."""
    shown = (character for character in normalize("NFC", name) if category(character) != "Cf")
    return " ".join("".join(shown).split())


def _ends(name: str) -> Iterator[str]:
    """Yield what follows each hyphen, the longest first."""
    while "-" in name:
        name = name.partition("-")[2]
        yield name


def from_json(text: str) -> Roster | None:
    """Return the roster that a run stores; None when it has none. Raises `StoreFailure` when it is damaged."""
    if not text:
        return None
    try:
        values = json.loads(text)
        rows = tuple((str(name), checked(Student, student)) for name, student in values["rows"])
        return Roster(rows=rows, by_ending=bool(values["by_ending"]))
    except DAMAGE as error:
        raise StoreFailure("the roster of the previous run is damaged in its store: write --roster FILE") from error


def load(path: Path) -> Roster:
    """Read a CSV file with a header line, such as GitHub Classroom's own. Raises `ClassFileError` with all mistakes."""
    text = read_text(path, _MOST_CSV_BYTES, ClassFileError, advice="; save it as CSV UTF-8").removeprefix("\ufeff")
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count), strict=True)
    problems: list[FileProblem] = []
    rows: list[tuple[str, Student]] = []
    key = None
    try:
        if first.lower().startswith("sep="):  # Excel's line of its own that names the separator
            next(reader)
        columns = [name.strip().lower() for name in next(reader, [])]
        key = next((name for name in _KEYS if name in columns), None)
        columns = [_SAYS_WHO.get(name, name) if "sid" not in columns else name for name in columns]
        if key is None or "name" not in columns:
            raise ClassFileError([FileProblem(path, 1, f"a column 'folder' or 'name' is missing; {_HEADING}")])
        twice = [name for name in (key, *_COLUMNS) if columns.count(name) > 1]
        problems += [FileProblem(path, 1, f"the column '{name}' occurs twice") for name in twice]
        rows += _rows(path, reader, columns, key=key, problems=problems)
    except csv.Error as failure:
        message = f"cannot be read as CSV ({failure}); is a quote not closed?"
        problems.append(FileProblem(path, reader.line_num, message))
    if problems:
        raise ClassFileError(problems)
    return Roster(rows=tuple(rows), by_ending=key != _KEYS[0])


def _rows(
    path: Path, reader: Reader, columns: list[str], *, key: str, problems: list[FileProblem]
) -> Iterator[tuple[str, Student]]:
    seen: set[tuple[str, Student]] = set()
    names: dict[str, str] = {}
    places = {name: columns.index(name) for name in (key, *_COLUMNS) if name in columns}
    for number, row in enumerate(reader):
        if number >= MOST_ROWS:
            problems.append(FileProblem(path, reader.line_num, f"there are more than {MOST_ROWS} rows; is it a class?"))
            return
        values = {name: row[place].strip() for name, place in places.items() if place < len(row)}
        if not any(map(str.strip, row)):
            continue
        if key == _USER:  # there names may be empty, and students who have not accepted the assignment have no user
            values["name"] = values.get("name") or values.get("sid", "") or values.get(key, "")
        student = Student(**{name: values.get(name, "") for name in _COLUMNS})
        demanded = ("name",) if key == _USER else (key, "name")
        wrong = [f"{column} is empty" for column in demanded if not values.get(column)]
        wrong += [
            f"{column} has more than {MOST_VALUE} characters; is a quote not closed?"
            for column, value in values.items()
            if len(value) > MOST_VALUE
        ]
        if len(row) > len(columns):
            wrong.append("more values than columns; put values that contain a comma in quotes")
        if not wrong and (values[key], student) in seen:
            wrong.append(f"{cut(student.name)} occurs twice")
        if student.sid and names.setdefault(student.sid, student.name) != student.name:
            wrong.append(f"the sid {cut(student.sid)} is also that of {cut(names[student.sid])}")
        problems += [FileProblem(path, reader.line_num, message) for message in wrong]
        seen.add((values.get(key, ""), student))
        yield values.get(key, ""), student
