"""One call of a handout's API (or one poke), what it returned, and lists of such calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Argument = bool | int | float | str | tuple["Argument", ...] | None
"""A value of a case file: a number, a bare word, a list of values; true, false and null as JSON has them."""

NULL = "NULL"
"""The word for a null pointer in operations of a handout in C."""

_BARE = re.compile(r"[^\W\d][\w.-]*")


def written(value: Argument) -> str:
    """Return a value as a case file writes it: JSON without spaces, words without quotes."""
    if isinstance(value, str) and _BARE.fullmatch(value) and value not in ("null", "true", "false"):
        return value
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call or poke.

    `target` is the number of the engine it goes to (None: a NULL engine). `line` is its line in the case file; an
    operation that the harness adds, such as one that frees everything at the end, is `implicit`. `claim` is the reply
    that the case's author read from the handout, None if there is no claim.
    """

    name: str
    arguments: tuple[Argument, ...] = ()
    target: int | None = 1
    line: int = 0
    claim: str | None = None
    implicit: bool = False
    comment: str = ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The arguments of a call that takes only numbers; NULL counts as 0."""
        return tuple(
            argument if isinstance(argument, int) and not isinstance(argument, bool) else 0
            for argument in self.arguments
        )

    def __str__(self) -> str:
        words = [self.name, *map(written, self.arguments)]
        if self.target != 1:
            words.insert(0, "@NULL" if self.target is None else f"@{self.target}")
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an operation returned and, when a reference engine made it, why.

    `clause` is the sentence of the handout that decided (a name of the lab's `handout.toml`). `circumstances` belong to
    the grader: the words by which a known mistake recognises this situation, such as "copy-on-write".
    """

    text: str
    refused: bool = False
    clause: str = ""
    circumstances: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A list of operations with the settings under which they run (for example `seed`)."""

    operations: tuple[Operation, ...]
    settings: Mapping[str, int] = field(default_factory=dict)
