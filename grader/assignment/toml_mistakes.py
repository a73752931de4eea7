"""Mistakes in the syntax of a TOML file: the line of each, and what to write instead.

The messages of `tomllib` are for programmers, and some tell where it gave up, which is not the line of the mistake.
"""

from __future__ import annotations

import re

from grader.system.text_file import cut

_BACKSLASH = r"write \\ for a backslash, or the text in '...'"
_VALUE = "put text in quotes, or write a number without leading zeros, true or false"
_UNCLOSED = "the text that begins here does not end; add its closing quotes"

_SENTENCES = (
    (r"Cannot (overwrite|declare)", "{name} is defined twice; write it once{whole}"),
    (r"Duplicate inline table key '?(?P<key>[^']*)", "the key {key} stands twice between braces; write it once"),
    (r"Cannot (mutate|redefine)", "{name} adds to a value that is complete already; write all of it in one place"),
    (r"Unescaped", rf"a backslash in double quotes begins an escape such as \n, and this is none; {_BACKSLASH}"),
    (r"Invalid hex|Escaped", rf"\u and \U need the 4 or 8 hexadecimal digits of a character; {_BACKSLASH}"),
    (r"Illegal character '\\n'", "text in quotes must end in its line; put text of several lines in three quotes"),
    (r"(Illegal|Found invalid) character", "there is a control character in this line; remove it"),
    (r"Unterminated", _UNCLOSED),
    (r"Expected ['\"]'", _UNCLOSED),
    (r"Unclosed array", "a list does not end, or lacks a comma between two values; write it as [1, 2]"),
    (r"Unclosed inline", "a brace is not closed in its line, or a comma is missing; write {{ a = 1, b = 2 }}"),
    (r"Invalid initial", "a name is expected here; a table in braces is one line without a final comma"),
    (r"Invalid value", f"what follows the equals sign is not a value; {_VALUE}"),
    (r"Invalid date", f"there is no such date; {_VALUE}"),
    (r"Expected '='", "write KEY = VALUE; a key needs quotes if it has more than letters, digits, - and _"),
    (r"Expected newline", f"a line can hold only one value, or one [TABLE]; {_VALUE}"),
    (r"Expected '\]\]'", "the name of the table does not end; write [[NAME]]"),
    (r"Expected '\]'", "the name of the table does not end; write [NAME]"),
    (r"Invalid statement", "this is neither KEY = VALUE nor [TABLE]; a comment begins with #"),
)
"""The sentences for the messages of `tomllib`, by their beginnings. `name` is the key or the table of the statement."""

_STATEMENT = re.compile(
    r"""[ \t]*+(?:(?P<table>\[[^#]*\])|(?P<key>[\w."'\- \t]*[\w"'])[ \t]*=[ \t]*(?P<long>'''|\"{3}|\[)?)"""
)


def syntax_mistake(text: str, failure: str) -> tuple[int, str]:
    """Return line and sentence for a message of `tomllib` about this text."""
    if text.startswith("\ufeff"):
        return 1, "the file begins with a byte order mark; save it as UTF-8 without one"
    lines = text.rstrip().split("\n")
    place = re.search(r"line (\d+)", failure)
    line = int(place[1]) if place is not None else len(lines)
    unclosed = re.match(r"Unterminated|Expected ['\"]('+)", failure)
    if place is None and unclosed is not None:  # nothing closes it, so these are the last quotes of their kind
        double = '"' if '"' in lines[-1] and not text.endswith("\n") else '"""'
        line = text.count("\n", 0, text.rfind(unclosed[1] or double)) + 1
    name = "a key"
    if failure.startswith("Cannot"):
        line, name = _statement(lines, line)
    whole = ", with all of its keys" if name.startswith("the table") else ""
    for message, sentence in _SENTENCES:
        if (match := re.match(message, failure)) is not None:
            return line, sentence.format(name=name, whole=whole, **match.groupdict())
    return line, f"is not TOML: {failure}"


def _statement(lines: list[str], end: int) -> tuple[int, str]:
    """Return the line in which the statement begins whose value ends in line `end`, and what it defines."""
    opening = next((quotes for quotes in ("'''", '"""') if quotes in lines[end - 1]), "[")
    for line in range(end, 0, -1):
        match = _STATEMENT.match(lines[line - 1])
        if match is not None and (line == end or match["long"] == opening):
            return line, f"the table {cut(match['table'])}" if match["table"] else f"the key {cut(match['key'])}"
    return end, "a key"
