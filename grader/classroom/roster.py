"""The roster: who is in a class, from a CSV file of the instructor or from the list in a Gradescope export.

The list of an export (submission_metadata.yml) may contain students' output and the history of years, so only the nodes
below `:submitters:` are kept. YAML tags create no objects. Every value is text, so an id keeps its leading zeros. A
YAML alias refers to the node that it names; the node is not copied.
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
from unicodedata import category, normalize

from grader.assignment.input_file import cut, read_bytes, read_text
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
"""The columns that can identify a row: a submission's name, or the user name at its end (`hw3-jane`)."""
_SAYS_WHO = {"identifier": "sid"}
"""GitHub Classroom's column for the number, name or address by which a course knows a student."""
_COLUMNS = tuple(field.name for field in fields(Student))
_HEADING = "write a first line such as folder,name,sid,email,section"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Students by the name of their submission. A group has several students."""

    rows: tuple[tuple[str, Student], ...]
    by_ending: bool = False
    """Whether the names in the roster are only the ends of the submissions' names."""

    def students(self, submissions: Iterable[str]) -> dict[str, tuple[Student, ...]]:
        """Return the students of each of these submissions; () for a submission that is not in the roster."""
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
        """Map each submission to its name in the roster, or None. If several user names fit, the longest one counts."""
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
    """Return a name as readers see it: accents joined (macOS splits them), no invisible characters."""
    shown = (character for character in normalize("NFC", name) if category(character) != "Cf")
    return " ".join("".join(shown).split())


def _ends(name: str) -> Iterator[str]:
    """Yield the part of a name after each hyphen, the longest part first."""
    while "-" in name:
        name = name.partition("-")[2]
        yield name


def from_json(text: str) -> Roster | None:
    """Return the roster of a stored run; None if `text` is "". Raises `StoreFailure` if the roster is damaged."""
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
        if first.lower().startswith("sep="):  # Excel adds this line, which names the separator
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
        if key == _USER:  # names may be empty, and students without this assignment have no user
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


_MOST_BYTES = 32 << 20
_MOST_NODES = 1_000_000
_MOST_DEPTH = 30
_INSTEAD = "; name the class yourself, with --roster FILE"
_DIRECTIVE = re.compile(rb"^%", re.MULTILINE)
_SUBMITTERS = ("submitters", ":submitters")


def submitters(path: Path) -> Roster:
    """Return the students of each submission of an export. Raises `ClassFileError`."""
    content = read_bytes(path, _MOST_BYTES, ClassFileError)
    if directive := _DIRECTIVE.search(content):  # the parser's time for these grows with the square of their number
        line = content.count(b"\n", 0, directive.start()) + 1
        raise _unusable(path, line, "a line may not begin with % here")
    problems: list[FileProblem] = []
    rows = []
    for row in _listed_students(path, _submissions(path, content), problems):
        rows.append(row)
        if len(rows) > MOST_ROWS:  # a short file can refer to a long list many times
            raise _unusable(path, 1, f"names more than {MOST_ROWS} students")
    if problems:
        raise ClassFileError(problems)
    return Roster(rows=tuple(rows))


def _unusable(path: Path, line: int, message: str) -> ClassFileError:
    """Return the exception for a file that is not the list of an export, or is nested too deeply or too large."""
    return ClassFileError([FileProblem(path, line, f"{message}{_INSTEAD}")])


def _submissions(path: Path, content: bytes) -> dict[str, tuple[int, Any]]:
    """Return for each submission the line of its name, and the YAML node that describes it."""
    import yaml  # noqa: PLC0415 - slow to import, and only exports need it
    from yaml._yaml import CParser  # noqa: PLC0415
    from yaml.composer import Composer  # noqa: PLC0415
    from yaml.resolver import BaseResolver  # noqa: PLC0415

    class Loader(Composer, CParser, BaseResolver):
        """Composes nodes within limits, and keeps only the submitters of each submission."""

        def __init__(self) -> None:
            CParser.__init__(self, content)
            Composer.__init__(self)
            BaseResolver.__init__(self)
            self.nodes = self.depth = 0

        def failure(self, message: str) -> ClassFileError:
            """Return the exception for the node that begins with the next event."""
            mark = getattr(self.peek_event(), "start_mark", None)
            return _unusable(path, mark.line + 1 if mark else 1, message)

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.nodes += 1
            if self.nodes > _MOST_NODES:
                raise self.failure(f"holds more than {_MOST_NODES} values")
            if self.depth > _MOST_DEPTH:
                raise self.failure("is nested too deeply")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            other = self.depth == 2 and isinstance(index, yaml.ScalarNode) and index.value not in _SUBMITTERS
            return yaml.ScalarNode("", "") if other else node

    try:
        loader = Loader()
        root = loader.get_node() if loader.check_node() else None
        if loader.check_node():
            raise loader.failure("holds more than one list (a line --- begins another)")
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        reason = getattr(failure, "problem", None) or getattr(failure, "reason", "")
        line = mark.line if mark else content.count(b"\n", 0, getattr(failure, "position", 0))
        raise _unusable(path, line + 1, f"is not YAML ({cut(str(reason))})") from None
    if not isinstance(root, yaml.MappingNode):
        raise _unusable(path, 1, "is not a list of submissions as Gradescope exports it")
    names = ((name, about) for name, about in root.value if isinstance(name, yaml.ScalarNode))
    return {name.value[:MOST_VALUE]: (name.start_mark.line + 1, about) for name, about in names}


def _listed_students(
    path: Path, submissions: dict[str, tuple[int, Any]], problems: list[FileProblem]
) -> Iterator[tuple[str, Student]]:
    """Yield (submission, student) for each student in the list of a Gradescope export.

    `submissions` has the line and the parsed value of each submission. Add unusable lists to `problems`.
    """
    for name, (line, about) in submissions.items():
        listed: Any = _values(about).get("submitters")
        people = listed.value if listed is not None else []
        if people and (listed.id != "sequence" or any(person.id != "mapping" for person in people)):
            problems.append(FileProblem(path, line, f"{cut(name)}: its :submitters: must be a list of people"))
            continue
        for person in people:
            texts = {key: node.value[:MOST_VALUE] for key, node in _values(person).items() if node.id == "scalar"}
            sid, email, called = (texts.get(key, "") for key in ("sid", "email", "name"))
            yield name, Student(name=called or email or sid or name, sid=sid, email=email)


def _values(node: Any) -> dict[str, Any]:
    """Return the nodes of a mapping by key, without the colon of Ruby symbols (`:name`); {} for other nodes."""
    pairs = node.value if node.id == "mapping" else []
    return {key.value.removeprefix(":"): value for key, value in pairs if key.id == "scalar"}
