"""The types of a report and of its reader, and the functions that create a report's text.

Only this module and `Page` create a `Document`; a test in `grader/tests/test_house.py` fails if other code does.

A format is a function that returns a `Document`, so a format cannot leave values unescaped: it passes them to the
function for its target, which escapes them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from grader.core.record import Record, Student, to_json
from grader.core.sanitize import plain
from grader.core.verdict import Audience, Feedback, RuleScore
from grader.report.escape import (
    csv_cell,
    escape,
    inside_html,
    inside_log,
    markdown,
    sarif_message,
    workflow_message,
    workflow_property,
)

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

    from jinja2 import Template


_SCRIPTS = {"submission": "steps.js", "class": "table.js", "kills": "kills.js"}
"""The script of each page that has a script."""
_SHELL = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%(policy)s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{{ title }}</title>
<style>%(style)s</style>
</head>
<body>
%(body)s<script>%(script)s</script>
</body>
</html>
"""


class Document(str):
    """The text of a report; every value in it is escaped for its target."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    height: int = 0
    """The number of rows of the terminal; 0 if the report does not go to a terminal."""
    colour: bool = False
    everything: bool = False
    """Whether to show every cause in full (`--all`). Only the format `text` has a shorter version."""
    workflow: bool = False
    """Whether the report goes to the log of a GitHub workflow, where a line can be a command."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables; Classroom 50 uses them to describe the submission that it passes on."""
    time: str = ""
    """The current time, as `YYYY-MM-DDTHH:MM:SSZ`."""

    @property
    def audience(self) -> Audience:
        """The reader of the report."""
        return Audience.INSTRUCTOR if self.instructor else Audience.STUDENT


class Format(Protocol):
    """Makes a report of a record."""

    def __call__(self, record: Record, view: View) -> Document:
        """Return the whole report."""


class Gradebook(Protocol):
    """Makes one file of many records: points by student without any case's content, or the records themselves."""

    def __call__(self, records: Iterable[Record], missing: Iterable[Student] = ()) -> Document:
        """Return a row for each student; `missing` are those who submitted nothing. Records are read one by one."""


def as_json(value: Record | Mapping[str, Any], *, one_line: bool = False) -> Document:
    """Return a record, or a mapping, as a JSON object with a line end. It is safe within HTML too."""
    if isinstance(value, Record):
        return Document(inside_html(to_json(value, one_line=one_line)))
    indent = None if one_line else 1
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return Document(inside_html(text) + "\n")


def as_sarif(log: Mapping[str, Any]) -> Document:
    """Return a SARIF 2.1.0 log: JSON in which every `text`, at any depth, is escaped as a message."""
    return as_json({name: _with_messages(value) for name, value in log.items()})


def _with_messages(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: sarif_message(item) if name == "text" else _with_messages(item) for name, item in value.items()}
    return [_with_messages(item) for item in value] if isinstance(value, list) else value


def as_csv(rows: Iterable[Sequence[str | float | None]]) -> Document:
    """Return a CSV table; the first row is the heading. Every text is quoted, so that no separator in it splits it."""
    import csv  # noqa: PLC0415 - only such reports need it

    table = io.StringIO()
    writer = csv.writer(table, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in rows:
        writer.writerow([csv_cell(value) for value in row])
    return Document(table.getvalue())


def as_xml(root: ET.Element) -> Document:
    """Return an XML document. Texts and attributes are made plain, because XML cannot contain some characters."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415 - only such reports need it

    for element in root.iter():
        element.text = element.text and plain(element.text)
        element.tail = element.tail and plain(element.tail)
        element.attrib = {name: plain(value) for name, value in element.attrib.items()}
    return Document(ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def as_html(template: str, **values: object) -> Document:
    """Fill a Jinja template; every value is escaped. The template must put attribute values in quotes."""
    return Document(inside_log(_compiled(template, _plain_value).render(values)))


def as_markdown(template: str, **values: object) -> Document:
    """Fill a Jinja template for GitHub's Markdown. Printed lines go into `<pre>`, code into `<code>`, not backticks."""
    return Document(_compiled(template, _markdown_value).render(values))


def _plain_value(value: object) -> object:
    return plain(value) if type(value) is str else value


def _markdown_value(value: object) -> object:
    from markupsafe import Markup  # noqa: PLC0415 - slow to import, and only such reports need it

    return value if isinstance(value, Markup) else Markup(markdown(str(value)))  # noqa: S704 - it is escaped


@cache
def _compiled(template: str, finalize: Callable[[object], object]) -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - slow to import, and only such reports need it

    environment = Environment(
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(template)


def as_command(name: str, message: str, **properties: str | int) -> Document:
    """Return one GitHub workflow command, such as `as_command("error", text, file="ring.c", line=3)`."""
    written = ",".join(f"{key}={workflow_property(str(value))}" for key, value in properties.items())
    return Document(f"::{name}{' ' if written else ''}{written}::{workflow_message(message)}\n")


def as_gnu_message(kind: str, message: str, file: str, *place: int | None) -> Document:
    """Return a line in the format of GNU compilers: `as_gnu_message("error", text, "ring.c", 3, 7)`.

    The column, or both line and column, may be missing.
    """
    where = ":".join((escape(file), *(str(number) for number in place if number)))
    return Document(f"{where}: {kind}: {escape(message)}\n")


def as_log(text: str) -> Document:
    """Return a text for the log of a GitHub workflow. GitHub does not execute commands in this text.

    Commands stay switched off until a line with a random token, which the text cannot contain.
    """
    token = secrets.token_hex(16)
    body = text if text.endswith("\n") else text + "\n"
    return Document(f"::stop-commands::{token}\n{body}::{token}::\n")


def joined(documents: Iterable[Document]) -> Document:
    """Concatenate the documents."""
    return Document("".join(documents))


# ---------------------------------------------------------------- web pages


def web_page(name: str, *, title: str, **values: object) -> Document:
    """Return the page `name` (template and script are in the folder `web`), with every value in it escaped."""
    return as_html(_template(name), title=title, **values)


@cache
def _template(name: str) -> str:
    style, script = _read("page.css"), _read(_SCRIPTS[name]) if name in _SCRIPTS else ""
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    body = _read("parts.jinja") + _read("chart.jinja") + _read(f"{name}.jinja")
    return _SHELL % {"policy": policy, "style": style, "script": script, "body": body}


def _read(name: str) -> str:
    return Path(__file__).with_name("web").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_WORDS = {
    Feedback.RULES: "Only the points of each rule are shown for this hand-in.",
    Feedback.SCORE: "Only the score is shown for this hand-in.",
}


def released(record: Record, audience: Audience) -> Record:
    """Return the part of a record that this reader may see; `feedback` of the result says how large the part is."""
    if audience is Audience.INSTRUCTOR or record.feedback is Feedback.FULL:
        return replace(record, feedback=Feedback.FULL)
    by_rule = record.feedback is Feedback.RULES
    return replace(
        record,
        submission=replace(record.submission, source=()),
        rules=tuple(map(_points_alone, record.rules)) if by_rule else (),
        overrides=record.overrides if by_rule else (),
        would_score=None,
        would_rules=(),
        causes=(),
        stages=(),
        outcomes=(),
        findings=(),
        advice=(),
        smallest=None,
        pictures=(),
        notation={},
        output="",
        unchecked="",
        failed_stages=(),
    )


def _points_alone(score: RuleScore) -> RuleScore:
    return RuleScore(
        rule=score.rule,
        title=score.title,
        handout=score.handout,
        points=score.points,
        max_points=score.max_points,
        cases=0,
        passed=0,
    )


def held_back(record: Record) -> str:
    """Return a sentence saying that the reader sees only a part of the record; "" if the reader sees everything."""
    return _WORDS.get(record.feedback, "")
