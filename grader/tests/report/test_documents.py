"""Every door of a report, against every attack: real readers find what was meant, in the structure that was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

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
    as_html,
    as_log,
    as_markdown,
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
    **dict.fromkeys(("junit", "sarif", "annotations", "summary", "html"), ("workflow",)),
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
def test_nothing_in_a_log_is_obeyed(name: str) -> None:
    """But for our own commands, before and behind it."""
    notice = as_command("notice", "ours")
    log = joined([notice, as_log(INJECTIONS[name]), notice])

    assert obeyed(log) == [notice.strip()] * 2
    assert INJECTIONS[name] in log
