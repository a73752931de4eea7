"""Text that others wrote, made safe and honest for a terminal: nothing in it moves the cursor or hides.

File names, function names, compiler messages and printed output come from the student. An escape sequence
among them could rewrite the report on the screen, a bidirectional override could show it in another order.
"""

from __future__ import annotations

import unicodedata

__all__ = ["cells", "escape", "escape_lines"]

_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Categories that draw nothing of their own: controls, format marks such as bidi overrides, no characters."""

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters by their category, but nothing is drawn for them."""

_MOST_MARKS = 2
_TAB = 4


def escape(text: str) -> str:
    r"""One line of `text`: what cannot be seen is written as C would write it, such as \x1b or \u202e."""
    if text.isascii() and text.isprintable():
        return text
    written: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        shown = _is_shown(character) and marks <= _MOST_MARKS
        written.append(character if shown else _name(character))
    return "".join(written)


def escape_lines(text: str) -> list[str]:
    """The lines of `text`, each escaped; line ends of any system are line ends, tabs are spaces."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return [escape(line.expandtabs(_TAB)) for line in lines]


def cells(text: str) -> int:
    """How many columns of a terminal an escaped `text` takes: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in _UNSEEN and character not in _BLANK_LETTERS


def _name(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
