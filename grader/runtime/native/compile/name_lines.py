"""Where the student's file has the name of a section or symbol that no debug line tells."""

from __future__ import annotations

import re

from grader.core.verdict import SourceLine

__all__ = ["Written"]


class Written:
    """The text of a file."""

    def __init__(self, source: bytes, name: str) -> None:
        self._lines = source.split(b"\n")
        self._name = name

    def line_of(self, symbol: str) -> list[SourceLine]:
        """The first line with the name, or with that before its version (`name@VERSION`); none when it is made up."""
        word = re.compile(rb"(?<![\w.$])" + re.escape(symbol.partition("@")[0].encode()) + rb"(?![\w.$])")
        for number, line in enumerate(self._lines, 1):
            if word.search(line):
                return [SourceLine(file=self._name, line=number)]
        return []
