"""Every door of a report, against every attack: real readers find what was meant, in the structure that was meant."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from grader.core.record import Record
from grader.core.sanitize import plain
from grader.core.verdict import Verdict, Visibility
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import (
    Document,
    View,
    as_command,
    as_csv,
    as_html,
    as_json,
    as_log,
    as_markdown,
    as_sarif,
    as_xml,
    joined,
)
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.injected import INJECTIONS, Page, filled, obeyed
from grader.tests.support.readers import READERS, RUNNER

_VIEWS = {
    "student": View(),
    "instructor in colour": View(instructor=True, colour=True, width=60),
    "workflow": View(instructor=True, workflow=True, variables=RUNNER, time="2026-11-21T18:00:00Z"),
}


_EACH = {
    "text": ("instructor in colour", "workflow"),
    **dict.fromkeys(("json", "junit", "sarif", "annotations", "gnu", "summary", "html"), ("workflow",)),
}
"""For each way to escape a format and the views in which it meets each attack by itself, in a record that shows most.

The other formats consist of these: gradescope is a text in JSON, classroom50 is JSON.
"""
_TOGETHER = "\n".join(text for text in INJECTIONS.values() if len(text) < 1000)
"""All attacks but the long ones, below each other: what each format meets in each view and in each kind of record."""


def test_every_format_has_a_real_reader() -> None:
    """A new one has to be read here before it is believed."""
    assert READERS.keys() == FORMATS.keys()
    assert BOOK_READERS.keys() == GRADEBOOKS.keys()
    assert FORMATS.keys().isdisjoint(GRADEBOOKS)


@pytest.mark.parametrize("view", _VIEWS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_stays_whole_whatever_stands_in_the_record(name: str, view: str) -> None:
    """Every text of the record is an attack."""
    records = [*_records(filled(_TOGETHER))]
    if view in _EACH.get(name, ()):
        records += [next(_records(filled(text))) for text in INJECTIONS.values()]
    for record in records:
        report = FORMATS[name](record, _VIEWS[view])

        assert isinstance(report, Document)
        READERS[name](report, _VIEWS[view])


@pytest.mark.parametrize("name", GRADEBOOKS)
def test_a_table_of_many_stays_whole_whatever_stands_in_the_records(name: str) -> None:
    """Names of students and submissions too, and those of who handed in nothing."""
    for text in (*INJECTIONS.values(), _TOGETHER):
        whole = filled(text)
        missing = (replace(whole.submission.students[0], name=plain(text)[:100]),)
        table = GRADEBOOKS[name](_records(whole), missing)

        assert isinstance(table, Document)
        BOOK_READERS[name](table)


def _records(whole: Record) -> Iterator[Record]:
    """The same with its case in sight, with a hidden one, with all points, and with a build that fails."""
    rules = tuple(replace(one, points=0) for one in whole.rules)
    for visibility in Visibility:
        outcomes = tuple(replace(one, verdict=Verdict.MEMORY_ERROR, visibility=visibility) for one in whole.outcomes)
        yield replace(whole, verdict=Verdict.WRONG_ANSWER, rules=rules, outcomes=outcomes)
    yield replace(whole, verdict=Verdict.ACCEPTED)
    building = tuple(replace(one, case=None) for one in whole.findings)
    yield replace(whole, verdict=Verdict.REJECTED, outcomes=(), findings=building, causes=())


@pytest.mark.parametrize("name", INJECTIONS)
def test_json_says_what_was_said(name: str) -> None:
    """Within HTML too: no end of a script, no line separator."""
    made = as_json({"x": INJECTIONS[name], "list": [plain(INJECTIONS[name])]})
    page = Page(f"<script>{made}</script>")

    assert json.loads(made) == {"x": INJECTIONS[name], "list": [plain(INJECTIONS[name])]}
    assert page.elements == ["script", "/script"]
    assert not re.search("[<\u2028\u2029]|##", made)


@pytest.mark.parametrize("name", INJECTIONS)
def test_xml_says_what_was_said(name: str) -> None:
    """In texts and attributes, without a character that XML cannot carry."""
    text = INJECTIONS[name]
    root = ET.Element("suite", name=text)
    case = ET.SubElement(root, "case", name=text)
    case.text = case.tail = text
    read = ET.fromstring(as_xml(root).encode())

    assert [one.tag for one in read.iter()] == ["suite", "case"]
    assert {read.get("name"), read[0].get("name"), read[0].text, read[0].tail} == {plain(text)}


@pytest.mark.parametrize("name", INJECTIONS)
def test_html_says_what_was_said(name: str) -> None:
    """In texts and attributes; the template's own elements are all there is."""
    template = "<p title=\"{{ x }}\" class='{{ x }}'>{{ x }}</p>{% for one in [x] %}<pre>{{ one }}</pre>{% endfor %}"
    page = Page(as_html(template, x=INJECTIONS[name]))

    assert page.elements == ["p title class", "/p", "pre", "/pre"]
    assert page.text == plain(INJECTIONS[name]) * 2


@pytest.mark.parametrize("name", INJECTIONS)
def test_markdown_says_what_was_said(name: str) -> None:
    """In a heading, a table, a paragraph, a list, `<code>` and `<pre>`: no mark and no HTML of theirs, and no link."""
    template = (
        "# {{ x }}\n\n| a | b |\n|---|---|\n| {{ x }} | <code>{{ x }}</code> |\n\n{{ x }}\n\n- {{ x }}\n\n"
        "<pre>\n{{ x }}\n</pre>\n\nend\n"
    )
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    text = INJECTIONS[name].strip() or "x"
    page, harmless = (Page(reader.render(as_markdown(template, x=one))) for one in (text, "harmless"))
    shown = page.text.replace("\u200b", "")

    assert page.elements == harmless.elements
    assert shown.count(plain(text).strip()) >= 6
    assert not re.search(r"@\w|#\d|://|:\w+:", page.text)


@pytest.mark.parametrize("name", INJECTIONS)
def test_sarif_says_what_was_said(name: str) -> None:
    """In every message, however deep: no link and no argument; where it is no message nothing is escaped."""
    text = INJECTIONS[name]
    made = json.loads(as_sarif({"runs": [{"message": {"text": text}, "name": text}]}))["runs"][0]
    message = made["message"]["text"].replace("{{", "{").replace("}}", "}")

    def taken(match: re.Match[str]) -> str:
        return match[1][: len(match[1]) // 2] + "]"

    assert re.sub(r"((?:\\\\)*)\\\](?=\()", taken, message) == plain(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*\]\(", message)
    assert made["name"] == text


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_table_says_what_was_said(name: str) -> None:
    """One cell, whatever separator its reader guesses, and never a formula; numbers stay numbers."""
    text = INJECTIONS[name]
    made = as_csv([["name", "points"], [text, -1.5], [f"x{text}", None]])
    rows = list(csv.reader(io.StringIO(made)))

    assert [len(row) for row in rows] == [2, 2, 2]
    assert rows[1][0] in (plain(text), f"'{plain(text)}")
    assert not re.match(r"\s*[=+\-@＝＋－＠]|[\t\r\n]", rows[1][0])
    assert (rows[1][1], rows[2][0], rows[2][1]) == ("-1.5", f"x{plain(text)}", "")
    assert [len(row) for row in csv.reader(io.StringIO(made), delimiter=";")] == [1, 1, 1]


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_command_says_what_was_said(name: str) -> None:
    """One line, one command, its properties and its message as they were given."""
    text = INJECTIONS[name]
    made = as_command("error", text, file=text, line=3, title=text)
    read = re.fullmatch(r"::error ([^:\n]*)::([^\n\r]*)\n", made)
    assert read is not None
    properties = dict(one.split("=", 1) for one in read[1].split(","))

    def taken(value: str) -> str:
        for written, mark in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            value = value.replace(written, mark)
        return value

    assert {name: taken(value) for name, value in properties.items()} == {
        "file": plain(text),
        "line": "3",
        "title": plain(text),
    }
    assert taken(read[2]) == plain(text)
    assert as_command("endgroup", "") == "::endgroup::\n"


@pytest.mark.parametrize("name", INJECTIONS)
def test_nothing_in_a_log_is_obeyed(name: str) -> None:
    """But for our own commands, before and behind it."""
    notice = as_command("notice", "ours")
    log = joined([notice, as_log(INJECTIONS[name]), notice])

    assert obeyed(log) == [notice.strip()] * 2
    assert INJECTIONS[name] in log


def test_the_reader_of_logs_obeys_what_a_runner_obeys() -> None:
    """Else the tests with it would show nothing."""
    assert len(obeyed("::error::a\n  ::add-mask::b\nx ##[warning]c\n::set-output name=d::e\nx ::f::\n")) == 4
    assert obeyed("::stop-commands::t\n::error::a\n::t::\n::debug::b") == ["::debug::b"]


def test_no_two_logs_end_with_the_same_token() -> None:
    """Who saw one cannot end the next."""
    assert len({as_log("x") for _ in range(100)}) == 100


def test_a_template_with_a_hole_is_an_error() -> None:
    """A value that was forgotten is not empty text."""
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        as_html("{{ forgotten }}")


def test_markup_that_a_template_made_itself_is_not_escaped_twice() -> None:
    """A macro's result, in both kinds of templates."""
    template = "{% macro bold(x) %}<b>{{ x }}</b>{% endmacro %}{{ bold(y) }}"

    assert as_html(template, y="a<b") == "<b>a&lt;b</b>"
    assert unescape(as_markdown(template, y="a<b")) == "<b>a<b</b>"
    assert "<b>a&#60;b</b>" in as_markdown(template, y="a<b")
