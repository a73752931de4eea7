"""Escaping for each target: text that the target would take for its own syntax is written so that it is only shown.

Each function is for one place in one target. Formats do not call them: the functions of `grader.report.document` and
the terminal's `Page` do. Characters that no target can contain are already replaced, see `grader.core.sanitize`.
"""

from __future__ import annotations

import re
import unicodedata

from grader.core.sanitize import one_line, plain

_TAB = 4
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
_MARKS = re.compile(r"[!-/:-@\[-`{-~\n\t]")
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_LINK = re.compile(r"(\\*)\](?=\()")
_STARTS_LINK = "@#:"
"""GitHub makes a link if one of these precedes a name, a number or `//`. This happens after Markdown has become HTML,
where character references are text again."""


def escape(text: str) -> str:
    r"""Return one line for a terminal: nothing in it moves the cursor or is invisible."""
    return one_line(text)


def escape_lines(text: str) -> list[str]:
    """Return the lines of a text, each escaped for a terminal; tabs become spaces."""
    lines = plain(text).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [one_line(line.expandtabs(_TAB)) for line in lines]


def cells(text: str) -> int:
    """Return how many terminal columns an escaped `text` takes: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def markdown(text: str) -> str:
    """Escape text for GitHub's Markdown: a paragraph, a table cell, `<code>`, `<pre>`, but not code in backticks.

    Every mark becomes a character reference, which CommonMark never treats as structure or HTML. A zero-width space
    prevents names, numbers and addresses from becoming links. Dependency bots use the same method.
    """
    return _MARKS.sub(_reference, plain(text))


def _reference(match: re.Match[str]) -> str:
    mark = match.group()
    starts = mark in _STARTS_LINK and not match.string[match.end() :].startswith(" ")
    return f"&#{ord(mark)};" + ("&#8203;" if starts else "")


def csv_cell(value: str | float | None) -> str | float | None:
    """Return a cell that no spreadsheet treats as a formula. Numbers stay numbers; the CSV writer adds the quotes."""
    if isinstance(value, str):
        value = plain(value)
        return f"'{value}" if _FORMULA.match(value) else value
    return value


def workflow_message(text: str) -> str:
    """Escape the text after the second `::` of a GitHub workflow command; it may have several lines."""
    return plain(text).replace("%", "%25").replace("\n", "%0A")


def workflow_property(text: str) -> str:
    """Escape the value of a property of a workflow command, such as a file or a title."""
    return workflow_message(text).replace(":", "%3A").replace(",", "%2C")


def inside_log(html: str) -> str:
    """Return HTML in which no line is a command in the log of a workflow; a browser shows the same page."""
    return _COMMAND.sub(r"\1&#58;", html).replace("##", "&#35;#")


def sarif_message(text: str) -> str:
    r"""Escape a SARIF message, in which `[text](where)` is a link and `{0}` an argument (2.1.0, 3.11.5 and 3.11.6).

    Braces are doubled. A bracket that could end the text of a link gets a backslash before it.
    """
    return _LINK.sub(r"\1\1\]", plain(text)).replace("{", "{{").replace("}", "}}")


def inside_html(json: str) -> str:
    r"""Return JSON that is safe in a `<script>` and in the log of a workflow: without `<`, `##`, U+2028 and U+2029.

    These occur only in the strings of JSON, and every JSON parser reads \u003c as `<`.
    """
    for mark, written in (("<", "\\u003c"), ("##", "#\\u0023"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        json = json.replace(mark, written)
    return json
