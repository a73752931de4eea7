"""Read who submitted what from the list in a Gradescope export (submission_metadata.yml).

The list may contain students' output and the history of years, so only the nodes under `:submitters:` are kept. They
are read as they are written: no tag creates an object, every value is text (an id keeps its zeros), and an alias is the
very node that it names, never a copy.
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
_MOST_NODES = 1_000_000
_MOST_DEPTH = 30
_INSTEAD = "; name the class yourself, with --roster FILE"
_DIRECTIVE = re.compile(rb"^%", re.MULTILINE)
_SUBMITTERS = ("submitters", ":submitters")


def submitters(path: Path) -> Roster:
    """Return the students of each submission. Raises `ClassFileError`."""
    content = read_bytes(path, _MOST_BYTES, ClassFileError)
    if directive := _DIRECTIVE.search(content):  # the parser's time for these grows with the square of their number
        line = content.count(b"\n", 0, directive.start()) + 1
        raise ClassFileError([FileProblem(path, line, f"a line may not begin with % here{_INSTEAD}")])
    try:
        submissions = _submissions(content)
    except _UnusableList as failure:
        raise ClassFileError([FileProblem(path, failure.line, f"{failure}{_INSTEAD}")]) from None
    problems: list[FileProblem] = []
    rows = []
    for row in _rows(path, submissions, problems):
        rows.append(row)
        if len(rows) > MOST_ROWS:  # a short file can refer to a long list again and again
            raise ClassFileError([FileProblem(path, 1, f"names more than {MOST_ROWS} students{_INSTEAD}")])
    if problems:
        raise ClassFileError(problems)
    return Roster(rows=tuple(rows))


class _UnusableList(Exception):
    """A file is no such list, or deeper or larger than one can be."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _submissions(content: bytes) -> dict[str, tuple[int, Any]]:
    """Return for each submission the line of its name and the node about it."""
    import yaml  # noqa: PLC0415 - slow to import, and only exports need it
    from yaml._yaml import CParser  # noqa: PLC0415
    from yaml.composer import Composer  # noqa: PLC0415
    from yaml.resolver import BaseResolver  # noqa: PLC0415

    class Loader(Composer, CParser, BaseResolver):
        """Composes nodes within bounds, and keeps of a submission only its submitters."""

        def __init__(self) -> None:
            CParser.__init__(self, content)
            Composer.__init__(self)
            BaseResolver.__init__(self)
            self.nodes = self.depth = 0

        def failure(self, message: str) -> _UnusableList:
            """Return the exception for what begins with the next event."""
            mark = getattr(self.peek_event(), "start_mark", None)
            return _UnusableList(message, mark.line + 1 if mark else 1)

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
        raise _UnusableList(f"is not YAML ({cut(str(reason))})", line + 1) from None
    if not isinstance(root, yaml.MappingNode):
        raise _UnusableList("is not a list of submissions as Gradescope exports it", 1)
    names = ((name, about) for name, about in root.value if isinstance(name, yaml.ScalarNode))
    return {name.value[:MOST_VALUE]: (name.start_mark.line + 1, about) for name, about in names}


def _rows(
    path: Path, submissions: dict[str, tuple[int, Any]], problems: list[FileProblem]
) -> Iterator[tuple[str, Student]]:
    """Yield (submission, student)."""
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
    """Return the nodes of a mapping by their keys, which are Ruby symbols, `:name`; none where it is no mapping."""
    pairs = node.value if node.id == "mapping" else []
    return {key.value.removeprefix(":"): value for key, value in pairs if key.id == "scalar"}
