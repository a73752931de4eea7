"""Read a table of a TOML file key by key, and collect its mistakes with what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.assignment import toml_source
from grader.core.case import Number
from grader.core.errors import MOST_SHOWN, Problem
from grader.system.text_file import cut, short

_MOST_LETTERS = 60
"""The longest word that is looked up: the time to compare two words grows with the product of their lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The values of one table; each method reads one key and adds to `problems` why it cannot."""

    path: Path
    text: str
    """The text of the whole file."""
    values: dict[str, Any]
    problems: list[Problem]
    """The mistakes in the whole file."""
    name: str = ""
    """"" for the keys before the first table."""
    row: int | None = None
    """The index of a table [[NAME]] among those of its name, from 0."""

    def line_of(self, key: str) -> int:
        """Return the line to show for a mistake in this key."""
        return toml_source.line_of(self.text, key, self.name, self.row)

    def complain(self, key: str, message: str) -> None:
        """Add a mistake to `problems`, with the line of the key."""
        self.problems.append(Problem(self.path, self.line_of(key), message))

    def check_keys(self, known: Collection[str]) -> None:
        """Report every key that is not in `known`."""
        for key in self.values:
            if key not in known:
                self.complain(key, f"unknown key {short(self._full(key))}{self.hint(key, known)}")

    def string(self, key: str, wanted: str) -> str:
        """Return the text of a key that must be there; "" when it is missing, blank or not text."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            mistake = (
                "is missing" if value is None else "is empty" if isinstance(value, str) else "must be text in quotes"
            )
            self.complain(key, f"{self._full(key)} {mistake}: write {key} = {wanted}")
            return ""
        return value

    def choice(self, key: str, allowed: Collection[str], default: str = "") -> str:
        """Return the word of a key, one of `allowed`; "" if it is none of them. Without a default it must be there."""
        value = self.values.get(key, default or None)
        if not isinstance(value, str) or value not in allowed:
            full = self._full(key)
            mistake = f"unknown {full} {short(value)}" if isinstance(value, str) else f"{full} must be text in quotes"
            self.complain(
                key,
                (f"{full} is missing" if value is None else mistake) + (self.hint(value, allowed) or _one_of(allowed)),
            )
            return ""
        return value

    def words(self, key: str, allowed: Collection[str]) -> frozenset[str]:
        """Return the words of a list, which may be missing; each must be one of `allowed`."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self.complain(key, f'{self._full(key)} must be a list of words such as ["{next(iter(allowed))}"]')
            return frozenset()
        for word in value:
            if word not in allowed:
                hint = self.hint(word, allowed) or _one_of(allowed)
                self.complain(key, f"unknown word {short(word)} in {self._full(key)}{hint}")
        return frozenset(value)

    def number(self, key: str, number: Number, *, needed: bool = False) -> int | None:
        """Return a whole number that `number` allows; None when it is missing or not allowed."""
        value = self.values.get(key)
        if value is None and not needed:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value not in number:
            demand = "is missing: it must be" if value is None else "must be"
            shown = "" if value is None else f", not {short(value)}"
            self.complain(key, f"{self._full(key)} {demand} a whole number {number.values}{shown}")
            return None
        return value

    def switch(self, key: str) -> bool:
        """Whether the key is true; False when it is missing."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            self.complain(key, f"{self._full(key)} must be true or false, not {short(value)}")
        return value is True

    def tables(self, key: str) -> dict[str, Table]:
        """Return the tables [KEY.NAME] by their names."""
        inner = self.values.get(key, {})
        if not isinstance(inner, dict) or not all(isinstance(values, dict) for values in inner.values()):
            self.complain(key, f"{self._full(key)} may hold tables only: write [{self._full(key)}.NAME]")
            return {}
        return {name: replace(self, values=values, name=f"{self._full(key)}.{name}") for name, values in inner.items()}

    def rows(self, key: str) -> list[Table]:
        """Return the tables [[KEY]], in their order."""
        inner = self.values.get(key, [])
        if not isinstance(inner, list) or not all(isinstance(values, dict) for values in inner):
            self.complain(key, f"{self._full(key)} may hold tables only: write [[{self._full(key)}]] above each")
            return []
        return [replace(self, values=values, name=self._full(key), row=row) for row, values in enumerate(inner)]

    def hint(self, word: object, known: Collection[str]) -> str:
        """Return a suggestion, but only for a mistake that will be shown: finding one takes long."""
        return suggestion(word, known) if isinstance(word, str) and len(self.problems) < MOST_SHOWN else ""

    def _full(self, key: str) -> str:
        return f"{cut(self.name)}.{key}" if self.name else key


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a known word that is close to this one, as a question to append to a message; "" without one."""
    close = difflib.get_close_matches(word, list(known), n=1) if len(word) <= _MOST_LETTERS else []
    return f" (did you mean {close[0]}?)" if close else ""


def _one_of(allowed: Collection[str]) -> str:
    """Return all allowed words, to append to a message."""
    return f"; one of: {', '.join(allowed)}"
