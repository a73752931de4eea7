r"""Conversion of text from outside to plain text: invisible characters become C escapes such as \x1b or \u202e.

File and function names, compiler messages and printed output come from the student. A control sequence in them
could rewrite a report on the screen, a bidirectional override could show it in another order, and XML cannot contain
them. So `grader.core.record` holds plain text only. `grader.report.escape` says what else each format must escape.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, get_type_hints

MOST_TEXT = 4000
"""The most characters in one text of a record."""

_CUT = " ... (cut here)"
_ORDINARY = re.compile(r"[\n\t -~]*")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories without a glyph: controls, format marks such as bidi overrides, code points without character."""

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters of a visible category for which nothing is drawn."""

_COMMON_CHINESE = re.compile(rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]")
"""Punctuation, full-width letters and the frequent characters in GB2312 encoding."""

_MOST_MARKS = 2
_TEXTLESS = (int, int | None, tuple[int, ...], tuple[int | None, ...])


def decoded(data: bytes) -> str:
    r"""Return bytes as plain text: they are decoded as UTF-8, and invalid bytes are written as \xff."""
    return plain(data.decode("utf-8", "backslashreplace"))


def decoded_lines(lines: Sequence[bytes]) -> list[str]:
    r"""Return each line of a source as plain text, decoded as UTF-8 if it is valid UTF-8, else in an older encoding.

    All lines that are not UTF-8 are decoded with one encoding. It is GB18030 (GBK, GB2312) if this makes more than half
    of their non-ASCII characters common Chinese: the 3755 frequent characters of GB2312, its punctuation or full-width
    letters. Otherwise it is Latin-1. This is a guess, for display only. Other encodings (Big5, Shift-JIS, KOI8-R) show
    wrong characters, a few rare Chinese characters may be taken for Latin-1, and bytes that are invalid in the chosen
    encoding are written as \xff. Line numbers stay the same, because each line is decoded by itself. Identifiers stay
    the same, because ASCII bytes are unchanged in both encodings, except as the second half of a Chinese character.
    """
    odd = b"\n".join(line for line in lines if not _is_utf8(line))
    encoding = "gb18030" if _is_chinese(odd) else "latin-1"
    return [decoded(line) if _is_utf8(line) else plain(line.decode(encoding, "backslashreplace")) for line in lines]


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_chinese(data: bytes) -> bool:
    characters = [character for character in data.decode("gb18030", "replace") if not character.isascii()]
    common = [character for character in characters if _COMMON_CHINESE.fullmatch(character.encode("gb18030"))]
    return 2 * len(common) > len(characters)


def plain(text: str) -> str:
    """Return the text with line ends and tabs as its only control characters. Plain text is returned unchanged."""
    if _ORDINARY.fullmatch(text):
        return text
    return "".join(_written(text.replace("\r\n", "\n"), allowed="\n\t"))


def one_line(text: str) -> str:
    r"""Return the text as plain text in one line: line ends and tabs are escaped too, as \x0a and \x09."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written(text))


def made_plain(value: Any) -> Any:
    """Return a value with every text in it plain and bounded, also inside tuples, dictionaries and data classes.

    If nothing has to change, the same object is returned.
    """
    if _is_plain(value):
        return value
    result = value
    if type(value) is str:
        result = _bounded(plain(value))
    elif type(value) is tuple:
        result = tuple(map(made_plain, value))
    elif type(value) is dict:
        result = {made_plain(key): made_plain(item) for key, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        result = replace(value, **changed) if (changed := plain_parts(value)) else value
    return result if result != value else value


def plain_parts(value: Any) -> dict[str, Any]:
    """Return the fields of a data class that are not plain, with their plain values."""
    changed = {}
    for name in _names(value.__class__):
        old = getattr(value, name)
        if not _is_plain(old) and (new := made_plain(old)) is not old:
            changed[name] = new
    return changed


def _is_plain(value: object) -> bool:
    """Whether a quick check shows that nothing has to change. This is enough for most values of a record."""
    if type(value) is str:
        ordinary = (value.isascii() and value.isprintable()) or _ORDINARY.fullmatch(value) is not None
        return len(value) <= MOST_TEXT and ordinary
    return not value


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a data class that may hold text."""
    hints = get_type_hints(kind)
    return tuple(field.name for field in fields(kind) if not _is_textless(hints[field.name]))


def _is_textless(hint: Any) -> bool:
    return hint in _TEXTLESS or (isinstance(hint, type) and issubclass(hint, bool | Enum))


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - len(_CUT)] + _CUT


def _written(text: str, allowed: str = "") -> list[str]:
    written: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        shown = character in allowed or (_is_shown(character) and marks <= _MOST_MARKS)
        written.append(character if shown else _name(character))
    return written


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _UNSEEN and character not in _BLANK_LETTERS


def _name(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
