"""The macros that a submission defines, and which of them a message of gcc is about.

gcc's messages for machines have the place where a macro is used, and not that of its definition, where the mistake
often is. The source says it: the name that stands at the message's place is a macro that was defined before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)", re.MULTILINE)
_RENUMBERS = re.compile(r"^[ \t]*#[ \t]*(?:line\b|\d)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST = 1 << 20
"""The most characters of a source in which macros are looked for."""
_TAB = 8
"""gcc's -ftabstop: some releases count columns as a terminal shows them."""


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro, and the line of its definition."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Macros:
    """The lines of a source without comments, and its directives: line, whether it defines, name."""

    lines: tuple[str, ...] = ()
    directives: tuple[tuple[int, bool, str], ...] = ()

    @classmethod
    def of(cls, source: str) -> Macros:
        """Return the macros of a source; none where its lines have other numbers for gcc, or it is very long."""
        if len(source) > _MOST or _RENUMBERS.search(source):
            return cls()
        text = _TOKEN.sub(_without_comment, source)
        directives = []
        line = end = 0
        for match in _DIRECTIVE.finditer(text):
            line, end = line + text.count("\n", end, match.start(2)), match.start(2)
            directives.append((line + 1, match[1] == "define", match[2]))
        return cls(tuple(text.split("\n")), tuple(directives))

    def at(self, line: int, column: int) -> Macro | None:
        """Return the macro whose name stands at that place (from 1), None for another name.

        None too where it has several definitions, since conditions may decide between them.
        """
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        for match in _NAME.finditer(text):
            before = text[: match.start()]
            if column - 1 in (len(before), len(before.encode()), len(before.expandtabs(_TAB))):
                return self._defined(match[0], line)
        return None

    def _defined(self, name: str, line: int) -> Macro | None:
        definitions: list[int] = []
        for place, defines, other in self.directives:
            if other == name and place < line:
                definitions = [*definitions, place] if defines else []
        return Macro(name, definitions[0]) if len(definitions) == 1 else None


def _without_comment(token: re.Match[str]) -> str:
    """Return a string as it is, and blanks for a comment; lines and columns stay."""
    return re.sub(r"[^\n]", " ", token[0]) if token[0].startswith("/") else token[0]
