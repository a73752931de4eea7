"""Find the line of the student's file with the name of a section or symbol for which there is no debug line."""

from __future__ import annotations

import re

from grader.core.verdict import SourceLine


class Written:
    """The text of a source file."""

    def __init__(self, source: bytes, name: str) -> None:
        self._lines = source.split(b"\n")
        self._name = name

    def line_of(self, symbol: str) -> list[SourceLine]:
        """Return the first line with the name, less any version (`name@VERSION`); an empty list when no line has it."""
        word = re.compile(rb"(?<![\w.$])" + re.escape(symbol.partition("@")[0].encode()) + rb"(?![\w.$])")
        for number, line in enumerate(self._lines, 1):
            if word.search(line):
                return [SourceLine(file=self._name, line=number)]
        return []
