"""Load the known mistakes of a lab: what was seen, which rule and sentence it breaks, and the hint for the student.

`cases/NAME/mistakes.toml` holds a table [[mistakes]] for each; the first that fits is used, so finer ones come first:

    [[mistakes]]
    calls    = ["free_blocks"]       # the call that went wrong; omitted: any
    facets   = ["free"]              # the facet that differs ("reply" too); omitted: any
    kinds    = ["hang"]              # or the kind of a finding, such as "exception", "hang", "invariant"
    circumstances = ["double-free"]  # words of the oracle's reply
    part     = "block 0"             # a part of the name of the field that differs
    never    = ["get_new_blocks"]    # calls that did their work in no case
    rule     = "free"                # a rule of rubric.toml
    sentence = "Task 2/free_blocks"  # a name of handout.toml; omitted: the one by which the reference decided
    hint     = "..."                 # may use {call}, {field}, {expected} and others (`grader.assignment.lab.Clue`)
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from grader.assignment import toml_source
from grader.assignment.lab import Clue
from grader.assignment.toml_table import Table
from grader.core.errors import RubricError
from grader.system.text_file import short

__all__ = ["load"]

_LISTS = ("calls", "facets", "kinds", "circumstances", "tags", "never")
_KEYS = (*_LISTS, "part", "rule", "sentence", "hint")
_NAMES = frozenset(
    "call field expected actual wanted refusal line clause reply note said".split()  # noqa: SIM905 - reads as a list
)
"""What a hint may name in braces; see `Clue`."""


def load(
    path: Path,
    *,
    calls: Collection[str],
    facets: Collection[str],
    rules: Collection[str],
    clauses: Collection[str],
) -> tuple[Clue, ...]:
    """Return the known mistakes of a file, in its order; none where there is no file.

    Raises `RubricError` with all mistakes of the file.
    """
    if not path.exists():
        return ()
    text, values = toml_source.read(path, RubricError)
    file = Table(path=path, text=text, values=values, problems=[])
    file.check_keys(("mistakes",))
    rows = file.rows("mistakes")
    clues = [_clue(row, calls=calls, facets=facets, rules=rules, clauses=clauses) for row in rows]
    if not file.problems:
        for row, earlier in _unreachable(clues):
            line = toml_source.line_of(text, "mistakes", "mistakes", earlier)
            rows[row].complain("rule", f"never used: the entry of line {line} fits whatever this one fits")
    if file.problems:
        raise RubricError(sorted(file.problems, key=lambda problem: problem.line))
    return tuple(clues)


def _clue(
    row: Table, *, calls: Collection[str], facets: Collection[str], rules: Collection[str], clauses: Collection[str]
) -> Clue:
    row.check_keys(_KEYS)
    clause = row.values.get("sentence", "")
    if clause and (not isinstance(clause, str) or clause not in clauses):
        row.complain("sentence", f"unknown sentence {short(str(clause))}{row.hint(clause, clauses)}")
    return Clue(
        rule=row.chosen("rule", sorted(rules)),
        hint=_hint(row),
        calls=tuple(sorted(row.words("calls", calls))),
        facets=tuple(sorted(row.words("facets", sorted(facets)))),
        kinds=tuple(sorted(_free_words(row, "kinds"))),
        circumstances=_free_words(row, "circumstances"),
        tags=_free_words(row, "tags"),
        part=_text(row, "part"),
        clause=clause if isinstance(clause, str) else "",
        never=tuple(sorted(row.words("never", calls))),
    )


def _hint(row: Table) -> str:
    """Return the hint, and report names in braces that mean nothing."""
    hint = row.string("hint", '"...", what to look at')
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(hint) if name is not None]
    except ValueError:
        row.complain("hint", "the hint has a single brace; write {{ and }} for braces")
        return hint
    for name in names:
        if name not in _NAMES:
            known = f"; one of: {', '.join(sorted(_NAMES))}"
            row.complain("hint", f"unknown name {short(name)} in the hint{row.hint(name, _NAMES) or known}")
    return hint


def _free_words(row: Table, key: str) -> frozenset[str]:
    """Return the words of a list, whichever they are."""
    value = row.values.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        row.complain(key, f'{key} must be a list of words such as ["hang"]')
        return frozenset()
    return frozenset(value)


def _text(row: Table, key: str) -> str:
    value = row.values.get(key, "")
    if not isinstance(value, str):
        row.complain(key, f"{key} must be text in quotes")
        return ""
    return value


def _unreachable(clues: Sequence[Clue]) -> Iterator[tuple[int, int]]:
    """Yield the rows that can never be used, each with an earlier row that is at least as general."""
    for row, clue in enumerate(clues):
        earlier = next((place for place, other in enumerate(clues[:row]) if _covers(other, clue)), None)
        if earlier is not None:
            yield row, earlier


def _covers(general: Clue, special: Clue) -> bool:
    """Whether each condition of `general` holds wherever those of `special` hold."""
    return (
        all(
            not getattr(general, key)
            or (getattr(special, key) and set(getattr(special, key)) <= set(getattr(general, key)))
            for key in ("calls", "facets", "kinds")
        )
        and general.circumstances <= special.circumstances
        and general.tags <= special.tags
        and set(general.never) <= set(special.never)
        and general.part in special.part
    )
