"""Who is in a class: a CSV file of the instructor's, or the list that a Gradescope export brings along."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from grader.errors import ClassFileError, Problem
from grader.record import Student

__all__ = ["Roster", "from_json", "load", "submitters"]

_KEYS = ("folder", "github_username")
"""The column that says whose row it is: a submission's name, or a user whose name ends it (`hw3-jane`)."""
_COLUMNS = tuple(field.name for field in fields(Student))
_HEADING = "write a first line such as folder,name,sid,email,section"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Students by the name of their submission; several for a group."""

    rows: tuple[tuple[str, Student], ...]
    by_ending: bool = False
    """Is the name only the end of that of the submission?"""

    def students(self, submissions: Iterable[str]) -> dict[str, tuple[Student, ...]]:
        """Whose each of these submissions is; nobody's where the roster does not say."""
        return {
            submission: tuple(student for name, student in self.rows if name == self._name_of(submission))
            for submission in submissions
        }

    def missing(self, submissions: Iterable[str]) -> tuple[Student, ...]:
        """Those who handed in nothing."""
        named = {self._name_of(submission) for submission in submissions}
        return tuple(student for name, student in self.rows if name not in named)

    def to_json(self) -> str:
        """As a run keeps it."""
        return json.dumps(asdict(self))

    def _name_of(self, submission: str) -> str | None:
        """The name that fits; the longest, where one user's name is the end of another's."""
        return max((name for name, _ in self.rows if self._fits(name, submission)), key=len, default=None)

    def _fits(self, name: str, submission: str) -> bool:
        return submission == name or (self.by_ending and submission.lower().endswith(f"-{name.lower()}"))


def from_json(text: str) -> Roster | None:
    """The roster that a run keeps; None when it has none."""
    if not text:
        return None
    values = json.loads(text)
    rows = tuple((name, Student(**student)) for name, student in values["rows"])
    return Roster(rows=rows, by_ending=values["by_ending"])


def load(path: Path) -> Roster:
    """Read a CSV file with a heading. Raises `ClassFileError` with all mistakes."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as failure:
        raise ClassFileError([Problem(path, 1, f"cannot be read: {failure.strerror}")]) from None
    except UnicodeDecodeError:
        raise ClassFileError([Problem(path, 1, "is not UTF-8 text; save it as CSV UTF-8")]) from None
    first = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or []]
    key = next((name for name in _KEYS if name in reader.fieldnames), None)
    if key is None or "name" not in reader.fieldnames:
        raise ClassFileError([Problem(path, 1, f"a column 'folder' or 'name' is missing; {_HEADING}")])
    problems: list[Problem] = []
    rows = list(_rows(path, reader, key, problems))
    if problems:
        raise ClassFileError(problems)
    return Roster(rows=tuple(rows), by_ending=key != _KEYS[0])


def _rows(path: Path, reader: csv.DictReader[str], key: str, problems: list[Problem]) -> Iterator[tuple[str, Student]]:
    seen: set[tuple[str, Student]] = set()
    for row in reader:
        values = {name: value.strip() for name, value in row.items() if isinstance(value, str)}
        if not any(values.values()):
            continue
        student = Student(**{name: values.get(name, "") for name in _COLUMNS})
        wrong = [f"{column} is empty" for column in (key, "name") if not values.get(column)]
        if None in row:
            wrong.append("more values than columns; put values that hold a comma in quotes")
        if (values.get(key, ""), student) in seen:
            wrong.append(f"{student.name} stands there twice")
        problems += [Problem(path, reader.line_num, message) for message in wrong]
        seen.add((values.get(key, ""), student))
        yield values.get(key, ""), student


def submitters(path: Path) -> Roster:
    """Who handed in what, from an export's submission_metadata.yml. Raises `ClassFileError`."""
    import yaml  # noqa: PLC0415 - slow to import, and only exports need it

    class Loader(yaml.CSafeLoader):  # type: ignore[misc, name-defined, unused-ignore]
        """Reads what Ruby wrote; its classes are plain mappings, lists and texts here."""

    Loader.add_multi_constructor("!ruby/", _plain)
    Loader.yaml_implicit_resolvers = {}  # every value is a text: a date needs no reading, an id keeps its zeros
    try:
        listed = yaml.load(path.read_bytes(), Loader)  # noqa: S506 - it is a safe loader
    except OSError as failure:
        raise ClassFileError([Problem(path, 1, f"cannot be read: {failure.strerror}")]) from None
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        raise ClassFileError([Problem(path, mark.line + 1 if mark else 1, "is not YAML")]) from None
    if not isinstance(listed, dict):
        raise ClassFileError([Problem(path, 1, "is no list of submissions, as Gradescope exports it")])
    return Roster(rows=tuple(_exported(listed)))


def _plain(loader: Any, _: str, node: Any) -> Any:
    import yaml  # noqa: PLC0415 - as above

    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


def _exported(listed: Mapping[object, Any]) -> Iterator[tuple[str, Student]]:
    """Keys are Ruby's symbols, `:name`; one that is missing is empty."""
    for name, about in listed.items():
        people: Iterable[Any] = _value(about, "submitters") or []
        for person in people:
            sid, email = (str(_value(person, key) or "") for key in ("sid", "email"))
            yield str(name), Student(name=str(_value(person, "name") or email or sid or name), sid=sid, email=email)


def _value(mapping: Any, key: str) -> Any:
    return mapping.get(f":{key}", mapping.get(key)) if isinstance(mapping, dict) else None
