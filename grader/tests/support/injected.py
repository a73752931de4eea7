"""Text that attacks reports: possible output and names of a student, records full of it, and readers that obey it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from html.parser import HTMLParser
from typing import Any, get_args, get_origin, get_type_hints

from grader.core.record import Record

INJECTIONS: Mapping[str, str] = {
    "terminal": "a\x1b[2J\x1b]0;title\x07\x9b31m\r\x08b",
    "bidi": "a\u202edrow\u2066 \u200b\ufeff\u2028\u2029\U000e0041",
    "marks": "e" + "\u0301" * 50,
    "nul": "a\0b\ufffe\uffff",
    "surrogate": "a\ud800\udcffb",
    "cdata": "]]></system-out></testcase><testcase name='x'/><!-- --><?x?>&amp;",
    "script": "</script></pre><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": "\"' onmouseover=alert(1) x='\"`",
    "formula": "=cmd|' /C calc'!A0",
    "formula behind a separator": 'x";=1+1,=1+1;"=1+1',
    "formula behind blanks": " \t=1+1",
    "tab": "\t=1+1",
    "minus": "-1+1",
    "at": "@SUM(1;1)",
    "wide formula": "＝1+1",
    "command": "::error file=a,line=1::forged\n  ::add-mask::a\n::set-output name=a::b\n::stop-commands::x\n::x::",
    "old command": "x ##[error]forged ##[add-mask]a ##vso[task.complete]",
    "property": "a,line=1::b:c%0Ad%25",
    "markdown": "# a\n\n---\n- b\n    c\n> d\n| e | f |\n**g** _h_ ~~i~~ \\* <b>",
    "link": "![x](http://example.org/x.png) [y](javascript:a) <http://example.org> www.example.org http://example.org",
    "mention": "@everybody #1 a@example.org GH-1",
    "backticks": "` `` ``` ```` ~~~~\n```",
    "template": "{{ 7 * 7 }} {% raw %} ${x} %s {0}",
    "json": '"}],"score":100,"x":[{"y":"\\',
    "attachment": "[[ATTACHMENT|/etc/passwd]]",
    "sarif": "[x](1) [y\\](2) [z\\\\](javascript:a) [a [b](sarif:/runs/0) {0} {{1}}",
    "long": "=" * 30_000,
    "many lines": "::x::\n" * 3_000,
}


def filled(text: str, kind: Any = Record) -> Any:
    """Return a value of this type that contains `text` wherever it can; of an enumeration the first member."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str:
        made: Any = text
    elif kind in (int, float, bool):
        made = kind(kind is not bool)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        made = next(iter(kind))
    elif is_dataclass(kind):
        hints = get_type_hints(kind)
        made = kind(**{field.name: filled(text, hints[field.name]) for field in fields(kind)})  # type: ignore[operator]
    elif origin is tuple:
        assert arguments[1:] == (...,)
        made = (0,) if arguments[0] is int else (filled(text, arguments[0]),)  # the numbers are indices into a list
    elif origin is dict:
        made = {filled(text, arguments[0]): filled(text, arguments[1])}
    else:  # T | None; grader.core.sanitize supports no other type
        one, none = arguments
        assert none is type(None)
        made = filled(text, one)
    return made


def obeyed(log: str) -> list[str]:
    """Return the commands that a GitHub runner would obey, line by line as its ActionCommand, but stop-commands."""
    found: list[str] = []
    stopped = ""
    for line in re.split(r"\r\n|[\r\n]", log):
        new = re.match(r"\s*::([^:\s]+)(?: [^:]*)?::(.*)", line)
        old = re.search(r"##\[([^\]\s;]+)[^\]]*\](.*)", line)
        name = new[1] if new else old[1] if old else ""
        if stopped:
            stopped = "" if name == stopped else stopped
        elif new and name == "stop-commands":
            stopped = new[2]
        elif name:
            found.append(line)
    assert not stopped, "commands stay switched off for whoever comes next"
    return found


class Page(HTMLParser):
    """The elements of a page with the names of their attributes, and its text, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store the element with the names of its attributes, not their values."""
        self.elements.append(" ".join([tag, *(name for name, _ in attrs)]))

    def handle_endtag(self, tag: str) -> None:
        """Store the end of the element too."""
        self.elements.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        """Store text, including the contents of a script."""
        self.text += data

    def handle_comment(self, data: str) -> None:
        """Store a comment; the grader's own pages have none."""
        self.elements.append(f"comment {data}")
