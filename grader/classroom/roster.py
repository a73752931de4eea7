"""The roster: who is in a class, from a CSV file of the instructor's or the list in a Gradescope export.

That list (submission_metadata.yml) may contain students' output and the history of years, so only names are taken from
it: the parser's events are read one after the other, and only what is under `:submitters:` is kept. No tag creates an
object.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.classroom.database import DAMAGE, checked
from grader.core.errors import ClassFileError, Problem, StoreFailure
from grader.core.record import Student
from grader.system.text_file import cut, read_bytes, read_text

if TYPE_CHECKING:
    from _csv import Reader


MOST_ROWS = 20_000
"""The most students of a class."""

MOST_VALUE = 1_000
"""The most characters of a name or another value."""

_MOST_CSV_BYTES = 4 << 20

_KEYS = ("folder", "github_username")
"""The column that identifies the row: a submission's name, or a user name with which it ends (`hw3-jane`)."""
_COLUMNS = tuple(field.name for field in fields(Student))
_HEADING = "write a first line such as folder,name,sid,email,section"
_MOST_LIST_BYTES = 32 << 20
_MOST_EVENTS = 1_000_000
_MOST_KEPT = 300_000
_MOST_DEPTH = 30
_INSTEAD = "; name the class yourself, with --roster FILE"
_DIRECTIVE = re.compile(rb"^%", re.MULTILINE)
_SUBMITTERS = ("submitters", ":submitters")
_NOTHING, _SUBMISSIONS, _SUBMISSION, _ALL = range(4)
"""Whether a node is kept: not at all, or as which kind of node."""


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
            people.setdefault(name, []).append(student)
        names = self._names(submissions)
        return {submission: tuple(people[name]) if name in people else () for submission, name in names.items()}

    def missing(self, submissions: Iterable[str]) -> tuple[Student, ...]:
        """Return the students who submitted nothing."""
        named = set(self._names(submissions).values())
        return tuple(student for name, student in self.rows if name not in named)

    def to_json(self) -> str:
        """Return the roster as JSON, as a run stores it."""
        return json.dumps(asdict(self))

    def _names(self, submissions: Iterable[str]) -> dict[str, str | None]:
        """Return the roster's name for each, or None; the longest, where one user's name is the end of another's."""
        exact = {name for name, _ in self.rows}
        endings: dict[str, str] = {}
        for name, _ in self.rows if self.by_ending else ():
            endings.setdefault(name.lower(), name)
        names: dict[str, str | None] = {}
        for submission in submissions:
            ends = (endings.get(end) for end in _ends(submission.lower()))
            names[submission] = submission if submission in exact else next(filter(None, ends), None)
        return names


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
    """Read a CSV file with a header line. Raises `ClassFileError` with all mistakes."""
    text = read_text(path, _MOST_CSV_BYTES, ClassFileError, advice="; save it as CSV UTF-8").removeprefix("\ufeff")
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
    problems: list[Problem] = []
    rows: list[tuple[str, Student]] = []
    key = None
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        key = next((name for name in _KEYS if name in columns), None)
        if key is None or "name" not in columns:
            raise ClassFileError([Problem(path, 1, f"a column 'folder' or 'name' is missing; {_HEADING}")])
        twice = [name for name in (key, *_COLUMNS) if columns.count(name) > 1]
        problems += [Problem(path, 1, f"the column '{name}' occurs twice") for name in twice]
        rows += _rows(path, reader, columns, key=key, problems=problems)
    except csv.Error as failure:
        message = f"cannot be read as CSV ({failure}); is a quote not closed?"
        problems.append(Problem(path, reader.line_num, message))
    if problems:
        raise ClassFileError(problems)
    return Roster(rows=tuple(rows), by_ending=key != _KEYS[0])


def _rows(
    path: Path, reader: Reader, columns: list[str], *, key: str, problems: list[Problem]
) -> Iterator[tuple[str, Student]]:
    seen: set[tuple[str, Student]] = set()
    places = {name: columns.index(name) for name in (key, *_COLUMNS) if name in columns}
    for number, row in enumerate(reader):
        if number >= MOST_ROWS:
            problems.append(Problem(path, reader.line_num, f"there are more than {MOST_ROWS} rows; is it a class?"))
            return
        values = {name: row[place].strip() for name, place in places.items() if place < len(row)}
        if not any(map(str.strip, row)):
            continue
        student = Student(**{name: values.get(name, "") for name in _COLUMNS})
        wrong = [f"{column} is empty" for column in (key, "name") if not values.get(column)]
        wrong += [
            f"{column} has more than {MOST_VALUE} characters; is a quote not closed?"
            for column, value in values.items()
            if len(value) > MOST_VALUE
        ]
        if len(row) > len(columns):
            wrong.append("more values than columns; put values that contain a comma in quotes")
        if not wrong and (values[key], student) in seen:
            wrong.append(f"{cut(student.name)} occurs twice")
        problems += [Problem(path, reader.line_num, message) for message in wrong]
        seen.add((values.get(key, ""), student))
        yield values.get(key, ""), student


def submitters(path: Path) -> Roster:
    """Return the students of each submission. Raises `ClassFileError`."""
    import yaml  # noqa: PLC0415 - slow to import, and only exports need it

    content = read_bytes(path, _MOST_LIST_BYTES, ClassFileError)
    if directive := _DIRECTIVE.search(content):  # the parser's time for these grows with the square of their number
        line = content.count(b"\n", 0, directive.start()) + 1
        raise ClassFileError([Problem(path, line, f"a line may not begin with % here{_INSTEAD}")])
    events = _Events(yaml.parse(content, yaml.CSafeLoader))
    try:
        listed = events.document()
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        reason = getattr(failure, "problem", None) or getattr(failure, "reason", "")
        message = f"is not YAML ({cut(str(reason))}){_INSTEAD}"
        raise ClassFileError([Problem(path, mark.line + 1 if mark else events.line, message)]) from None
    except _TooMuch as failure:
        raise ClassFileError([Problem(path, events.line, f"{failure}{_INSTEAD}")]) from None
    if not isinstance(listed, dict):
        raise ClassFileError([Problem(path, 1, f"is not a list of submissions as Gradescope exports it{_INSTEAD}")])
    problems: list[Problem] = []
    rows = []
    for row in _submitters(path, listed, events.lines, problems):
        rows.append(row)
        if len(rows) > MOST_ROWS:  # a short file can refer to a long list again and again
            raise ClassFileError([Problem(path, 1, f"names more than {MOST_ROWS} students{_INSTEAD}")])
    if problems:
        raise ClassFileError(problems)
    return Roster(rows=tuple(rows))


class _TooMuch(Exception):
    """A file is deeper or larger than such a list can be."""


class _Events:
    """Makes values from a parser's events: every value is text (an id keeps its zeros), a list or a dictionary."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.lines: dict[str, int] = {}
        """The lines of the keys of the outermost mapping."""
        self._events = events
        self._last: Any = None
        self._seen = 0
        self._node_count = 0
        self._anchors: dict[str, Any] = {}

    @property
    def line(self) -> int:
        """The line of the last event."""
        return int(self._last.start_mark.line) + 1 if self._last is not None else 1

    def document(self) -> Any:
        """Return the only document of the file; None when there is none."""
        value = None
        documents = 0
        while (event := self._next()) is not None:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise _TooMuch("holds more than one list (a line --- begins another)")
            elif kind not in ("StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"):
                value = self._node(event, _SUBMISSIONS, 0)
        return value

    def _next(self) -> Any:
        event = self._last = next(self._events, None)
        self._seen += 1
        if self._seen > _MOST_EVENTS:
            raise _TooMuch(f"holds more than {_MOST_EVENTS} values")
        return event

    def _node(self, event: Any, keep: int, depth: int) -> Any:
        """Return the value of a node that is kept; of another node only what has an anchor is remembered."""
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._anchors.get(event.anchor)
        if event.anchor is not None:
            keep = _ALL  # a later alias may refer to it
        self._node_count += keep != _NOTHING
        if depth > _MOST_DEPTH:
            raise _TooMuch("is nested too deeply")
        if self._node_count > _MOST_KEPT:
            raise _TooMuch(f"holds more than {_MOST_KEPT} names")
        value: Any
        if kind == "ScalarEvent":
            value = event.value[:MOST_VALUE] if keep else ""
        elif kind == "SequenceStartEvent":
            value = self._sequence(keep if keep == _ALL else _NOTHING, depth)
        else:
            value = self._mapping(keep, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _sequence(self, keep: int, depth: int) -> list[Any]:
        value = []
        while type(event := self._next()).__name__ != "SequenceEndEvent":
            item = self._node(event, keep, depth + 1)
            if keep:
                value.append(item)
        return value

    def _mapping(self, keep: int, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while type(event := self._next()).__name__ != "MappingEndEvent":
            line = self.line
            key = self._node(event, keep, depth + 1)
            inner = keep
            if keep == _SUBMISSIONS:
                inner = _SUBMISSION
            elif keep == _SUBMISSION:
                inner = _ALL if key in _SUBMITTERS else _NOTHING
            item = self._node(self._next(), inner, depth + 1)
            if inner and isinstance(key, str):
                value[key] = item
                if keep == _SUBMISSIONS:
                    self.lines[key] = line
        return value


def _submitters(
    path: Path, listed: dict[str, Any], lines: dict[str, int], problems: list[Problem]
) -> Iterator[tuple[str, Student]]:
    """Yield (submission, student). Keys are Ruby symbols, `:name`; the value of a missing key is empty."""
    for name, about in listed.items():
        people = _value(about, "submitters") or []
        if not isinstance(people, list) or not all(isinstance(person, dict) for person in people):
            problems.append(Problem(path, lines[name], f"{cut(name)}: its :submitters: must be a list of people"))
            continue
        for person in people:
            sid, email, called = (_text(person, key) for key in ("sid", "email", "name"))
            yield name, Student(name=called or email or sid or name, sid=sid, email=email)


def _text(mapping: dict[str, Any], key: str) -> str:
    value = _value(mapping, key)
    return value if isinstance(value, str) else ""


def _value(mapping: Any, key: str) -> Any:
    return mapping.get(f":{key}", mapping.get(key)) if isinstance(mapping, dict) else None
