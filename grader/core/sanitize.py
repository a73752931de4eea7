r"""Text that others wrote, made plain: what cannot be seen is written as C would write it, such as \x1b or \u202e.

File and function names, compiler messages and printed output come from the student. A control sequence among them
could rewrite a report on the screen, a bidirectional override could show it in another order, and no XML can carry
them. So `grader.core.record` holds plain text only; what else a format must not show as it stands is said in
`grader.report.escape`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, get_type_hints

__all__ = ["MOST_TEXT", "decoded", "decoded_lines", "made_plain", "one_line", "plain", "plain_parts"]

MOST_TEXT = 4000
"""Characters that one text of a record has at most."""

_CUT = " ... (cut here)"
_ORDINARY = re.compile(r"[\n\t -~]*")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Categories that draw nothing of their own: controls, format marks such as bidi overrides, no characters."""

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters by their category, but nothing is drawn for them."""

_COMMON_CHINESE = re.compile(rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]")
"""Punctuation, full-width letters and the frequent characters, as GB2312 writes them."""

_MOST_MARKS = 2
_TEXTLESS = (int, int | None, tuple[int, ...])


def decoded(data: bytes) -> str:
    r"""Bytes as plain text: UTF-8, and what is none is written as \xff."""
    return plain(data.decode("utf-8", "backslashreplace"))


def decoded_lines(lines: Sequence[bytes]) -> list[str]:
    r"""A source's lines as plain text, one for each: UTF-8 where a line is that, else what old editors write.

    All lines that are no UTF-8 are taken for one encoding: GB18030 (GBK, GB2312) if more than half of what is not ASCII
    in them is then common Chinese, the 3755 frequent characters of GB2312, its punctuation or full-width letters; else
    Latin-1. It is a guess, for eyes only: other encodings (Big5, Shift-JIS, KOI8-R) show wrong characters, few rare
    Chinese ones may be taken for Latin-1, and what is no character in the chosen one is written as \xff. No line moves,
    for a line is decoded by itself; identifiers do not, for in both encodings ASCII is what it is, but for the second
    half of a Chinese character.
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
    characters = [one for one in data.decode("gb18030", "replace") if not one.isascii()]
    common = [one for one in characters if _COMMON_CHINESE.fullmatch(one.encode("gb18030"))]
    return 2 * len(common) > len(characters)


def plain(text: str) -> str:
    """The text with line ends and tabs as its only controls. Of plain text it is the same text."""
    if _ORDINARY.fullmatch(text):
        return text
    return "".join(_written(text.replace("\r\n", "\n"), kept="\n\t"))


def one_line(text: str) -> str:
    r"""The same in one line: line ends and tabs are written out too, as \x0a and \x09."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written(text))


def made_plain(value: Any) -> Any:
    """A value with every text in it plain and bounded, in tuples, dictionaries and data classes too.

    It is the very same object where all of it is so already.
    """
    if _is_plain(value):
        return value
    made = value
    if type(value) is str:
        made = _bounded(plain(value))
    elif type(value) is tuple:
        made = tuple(map(made_plain, value))
    elif type(value) is dict:
        made = {made_plain(key): made_plain(item) for key, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        made = replace(value, **changed) if (changed := plain_parts(value)) else value
    return made if made != value else value


def plain_parts(value: Any) -> dict[str, Any]:
    """The fields of a data class that are not plain, made so."""
    changed = {}
    for name in _names(value.__class__):
        old = getattr(value, name)
        if not _is_plain(old) and (new := made_plain(old)) is not old:
            changed[name] = new
    return changed


def _is_plain(value: object) -> bool:
    """Quickly, for most of what a record holds: there is nothing to change, whatever it is."""
    if type(value) is str:
        ordinary = (value.isascii() and value.isprintable()) or _ORDINARY.fullmatch(value) is not None
        return len(value) <= MOST_TEXT and ordinary
    return not value


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a data class that may hold text."""
    hints = get_type_hints(kind)
    return tuple(field.name for field in fields(kind) if not _is_textless(hints[field.name]))


def _is_textless(hint: Any) -> bool:
    return hint in _TEXTLESS or (isinstance(hint, type) and issubclass(hint, bool | Enum))


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - len(_CUT)] + _CUT


def _written(text: str, kept: str = "") -> list[str]:
    written: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        shown = character in kept or (_is_shown(character) and marks <= _MOST_MARKS)
        written.append(character if shown else _name(character))
    return written


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _UNSEEN and character not in _BLANK_LETTERS


def _name(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
