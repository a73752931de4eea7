"""Text for where it goes: what the target takes for an order of its own is written so that it is only shown.

Each function knows one place in one target. Formats do not call them: the doors of `grader.report.document` and the
terminal's `Page` do. What no target can carry is gone already, see `grader.core.sanitize`.
"""

from __future__ import annotations

import re
import unicodedata

from grader.core.sanitize import one_line, plain

__all__ = [
    "cells",
    "csv_cell",
    "escape",
    "escape_lines",
    "inside_html",
    "inside_log",
    "markdown",
    "sarif_message",
    "workflow_message",
    "workflow_property",
]

_TAB = 4
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
_MARKS = re.compile(r"[!-/:-@\[-`{-~\n\t]")
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_LINK = re.compile(r"(\\*)\](?=\()")
_STARTS_LINK = "@#:"
"""Before a name, a number, `//`: GitHub makes links of these when Markdown is HTML already, where all is text again."""


def escape(text: str) -> str:
    r"""One line for a terminal: nothing in it moves the cursor or hides."""
    return one_line(text)


def escape_lines(text: str) -> list[str]:
    """The same for each line of a text; tabs are spaces."""
    lines = plain(text).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [one_line(line.expandtabs(_TAB)) for line in lines]


def cells(text: str) -> int:
    """How many columns of a terminal an escaped `text` takes: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def markdown(text: str) -> str:
    """Anywhere in GitHub's Markdown but in code of backticks: in a paragraph, a cell of a table, `<code>`, `<pre>`.

    Every mark is a character reference, which CommonMark never takes for structure or HTML. Names, numbers and
    addresses are kept from becoming links by a space of no width, as dependency bots do it.
    """
    return _MARKS.sub(_reference, plain(text))


def _reference(match: re.Match[str]) -> str:
    mark = match.group()
    starts = mark in _STARTS_LINK and not match.string[match.end() :].startswith(" ")
    return f"&#{ord(mark)};" + ("&#8203;" if starts else "")


def csv_cell(value: str | float | None) -> str | float | None:
    """A cell that no spreadsheet takes for a formula; numbers stay numbers. The quotes are the writer's business."""
    if isinstance(value, str):
        value = plain(value)
        return f"'{value}" if _FORMULA.match(value) else value
    return value


def workflow_message(text: str) -> str:
    """What stands behind the second `::` of a GitHub workflow command; it may have several lines."""
    return plain(text).replace("%", "%25").replace("\n", "%0A")


def workflow_property(text: str) -> str:
    """The value of a property before it, such as a file or a title."""
    return workflow_message(text).replace(":", "%3A").replace(",", "%2C")


def inside_log(html: str) -> str:
    """HTML of which no line is a command in the log of a workflow; to a browser it is the same."""
    return _COMMAND.sub(r"\1&#58;", html).replace("##", "&#35;#")


def sarif_message(text: str) -> str:
    r"""A message of SARIF, in which `[text](where)` is a link and `{0}` an argument (2.1.0, 3.11.5 and 3.11.6).

    Braces are doubled; a bracket that could end the text of a link is one of its letters behind a backslash.
    """
    return _LINK.sub(r"\1\1\]", plain(text)).replace("{", "{{").replace("}", "}}")


def inside_html(json: str) -> str:
    r"""JSON that can stand in a `<script>` or in the log of a workflow: its strings have no `<`, `##` or U+2028.

    These stand nowhere else in JSON, and \u003c is the same text to every reader.
    """
    for mark, written in (("<", "\\u003c"), ("##", "#\\u0023"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        json = json.replace(mark, written)
    return json
