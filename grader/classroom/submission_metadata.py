"""Read who submitted what from the list in a Gradescope export (submission_metadata.yml).

The list may contain students' output and the history of years, so only names are taken from it: the parser's events are
read one after the other, and only what is under `:submitters:` is kept. No tag creates an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.assignment.input_file import cut, read_bytes
from grader.classroom.roster import MOST_ROWS, MOST_VALUE, Roster
from grader.core.errors import ClassFileError, FileProblem
from grader.core.record import Student

_MOST_BYTES = 32 << 20
_MOST_EVENTS = 1_000_000
_MOST_KEPT = 300_000
_MOST_DEPTH = 30
_INSTEAD = "; name the class yourself, with --roster FILE"
_DIRECTIVE = re.compile(rb"^%", re.MULTILINE)
_STARTS = ("MappingStartEvent", "SequenceStartEvent")
_SUBMITTERS = ("submitters", ":submitters")
_NOTHING, _SUBMISSIONS, _SUBMISSION, _ALL = range(4)
"""Whether a node is kept: not at all, or as which kind of node."""


def submitters(path: Path) -> Roster:
    """Return the students of each submission. Raises `ClassFileError`."""
    import yaml  # noqa: PLC0415 - slow to import, and only exports need it

    content = read_bytes(path, _MOST_BYTES, ClassFileError)
    if directive := _DIRECTIVE.search(content):  # the parser's time for these grows with the square of their number
        line = content.count(b"\n", 0, directive.start()) + 1
        raise ClassFileError([FileProblem(path, line, f"a line may not begin with % here{_INSTEAD}")])
    events = _Events(yaml.parse(content, yaml.CSafeLoader))
    try:
        listed = events.document()
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        reason = getattr(failure, "problem", None) or getattr(failure, "reason", "")
        message = f"is not YAML ({cut(str(reason))}){_INSTEAD}"
        raise ClassFileError([FileProblem(path, mark.line + 1 if mark else events.line, message)]) from None
    except _TooMuch as failure:
        raise ClassFileError([FileProblem(path, events.line, f"{failure}{_INSTEAD}")]) from None
    if not isinstance(listed, dict):
        raise ClassFileError([FileProblem(path, 1, f"is no list of submissions, as Gradescope exports it{_INSTEAD}")])
    problems: list[FileProblem] = []
    rows = []
    for row in _rows(path, listed, events.lines, problems):
        rows.append(row)
        if len(rows) > MOST_ROWS:  # a short file can refer to a long list again and again
            raise ClassFileError([FileProblem(path, 1, f"names more than {MOST_ROWS} students{_INSTEAD}")])
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
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._anchors.get(event.anchor)
        if event.anchor is not None:
            keep = _ALL  # a later alias may refer to it
        if keep == _NOTHING:
            self._skip(event)
            return ""
        self._node_count += 1
        if depth > _MOST_DEPTH:
            raise _TooMuch("is nested too deeply")
        if self._node_count > _MOST_KEPT:
            raise _TooMuch(f"holds more than {_MOST_KEPT} names")
        value: Any
        if kind == "ScalarEvent":
            value = event.value[:MOST_VALUE]
        elif kind == "SequenceStartEvent":
            value = list(self._items("SequenceEndEvent", keep if keep == _ALL else _NOTHING, depth))
        else:
            value = self._mapping(keep, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _skip(self, event: Any) -> None:
        """Skip a node, as most of the list is. Only what has an anchor is kept: a later alias may refer to it."""
        depth = int(type(event).__name__ in _STARTS)
        while depth:
            event = self._next()
            name = type(event).__name__
            if name in _STARTS or name == "ScalarEvent":
                if event.anchor is not None:
                    self._node(event, _ALL, depth)
                elif name in _STARTS:
                    depth += 1
                    if depth > _MOST_DEPTH:
                        raise _TooMuch("is nested too deeply")
            elif name != "AliasEvent":
                depth -= 1

    def _items(self, end: str, keep: int, depth: int) -> Iterator[Any]:
        while type(event := self._next()).__name__ != end:
            yield self._node(event, keep, depth + 1)

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


def _rows(
    path: Path, listed: dict[str, Any], lines: dict[str, int], problems: list[FileProblem]
) -> Iterator[tuple[str, Student]]:
    """Yield (submission, student). Keys are Ruby symbols, `:name`; the value of a missing key is empty."""
    for name, about in listed.items():
        people = _value(about, "submitters") or []
        if not isinstance(people, list) or not all(isinstance(person, dict) for person in people):
            problems.append(FileProblem(path, lines[name], f"{cut(name)}: its :submitters: must be a list of people"))
            continue
        for person in people:
            sid, email, called = (_text(person, key) for key in ("sid", "email", "name"))
            yield name, Student(name=called or email or sid or name, sid=sid, email=email)


def _text(mapping: dict[str, Any], key: str) -> str:
    value = _value(mapping, key)
    return value if isinstance(value, str) else ""


def _value(mapping: Any, key: str) -> Any:
    return mapping.get(f":{key}", mapping.get(key)) if isinstance(mapping, dict) else None
