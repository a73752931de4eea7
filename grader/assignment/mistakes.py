"""Load the known mistakes of a lab: what was seen, which rule and sentence it breaks, and the hint for the student.

`cases/NAME/mistakes.toml` holds a table [[mistakes]] for each; the first that fits is used, so finer ones come first:

    [[mistakes]]
    calls    = ["give"]              # the call that went wrong; omitted: any
    facets   = ["free"]              # the facet that differs ("reply" too); omitted: any
    kinds    = ["hang"]              # or the kind of a finding, such as "exception", "hang", "invariant"
    circumstances = ["twice"]        # words of the lab for the situation of a call; the sentence by which the
                                     # reference decided, and how it refused it: "ValueError"
    part     = "block 0"             # a part of the name of the field that differs
    never    = ["take"]              # calls that did their work in no case
    rule     = "free"                # a rule of rubric.toml
    where    = "no-copy-needed"      # a condition that needs code: one of PREDICATES, or of those that the lab gives
    sentence = "Task 2/order"        # a name of handout.toml; omitted: the one by which the reference decided
    hint     = "..."                 # may use {call}, {field}, {expected} and others (`grader.assignment.lab.Mistake`),
                                     # and numbers of the assignment: {SLOTS}

Where the sentence depends on the call, it is a table: sentence = { touch = "Task 2/touch", reset = "Task 3/reset" }.
A table [kinds] before the first entry has words that stand for several kinds: stops = ["crash", "hang"].
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.assignment.input_file import TomlTable, line_of, short
from grader.assignment.lab import Mistake, Predicate
from grader.core.errors import RubricError
from grader.core.judgement import Judgement

_LISTS = ("calls", "facets", "kinds", "circumstances", "tags", "never")
_KEYS = (*_LISTS, "part", "where", "rule", "sentence", "hint")
_NAMES = frozenset(
    "call field expected actual wanted refusal line clause reply note message".split()  # noqa: SIM905 - reads as a list
)
"""What a hint may name in braces; see `Mistake`."""


def _wrongly_accepted(judgement: Judgement) -> bool:
    return judgement.expected.refused and not judgement.actual.refused


def _wrongly_refused(judgement: Judgement) -> bool:
    return judgement.actual.refused and not judgement.expected.refused


def _changes(judgement: Judgement) -> bool:
    """Whether anything but the reply is wrong."""
    return any(each.facet == "failing" and each.field != "the call" for each in judgement.differences)


PREDICATES: Mapping[str, Predicate] = {
    "wrongly-accepted": _wrongly_accepted,
    "wrongly-accepted-without-effect": lambda judgement: _wrongly_accepted(judgement) and not _changes(judgement),
    "wrongly-refused": _wrongly_refused,
    "wrongly-refused-without-effect": lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
}
"""Conditions that the mistakes of every lab may name: a call succeeded though it must fail, and changed nothing
besides; it failed though it must succeed, and left its work undone."""

NamedMistake = tuple[Mistake, str]
"""A mistake without its predicate, and the name of that; "" where it has none."""


def load(
    path: Path,
    *,
    calls: Collection[str],
    facets: Collection[str],
    rules: Collection[str],
    clauses: Collection[str],
    predicates: Mapping[str, Predicate] = PREDICATES,
    constants: Mapping[str, int] | None = None,
) -> tuple[Mistake, ...]:
    """Return the known mistakes of a file, in its order; none where there is no file.

    Raises `RubricError` with all mistakes of the file.
    """
    known = read(path, calls=calls, facets=facets, rules=rules, clauses=clauses, where=predicates, constants=constants)
    return bound(known, predicates)


def bound(mistakes: Iterable[NamedMistake], predicates: Mapping[str, Predicate]) -> tuple[Mistake, ...]:
    """Return the mistakes with the predicates that they name."""
    return tuple(replace(mistake, where=predicates[where]) if where else mistake for mistake, where in mistakes)


def read(
    path: Path,
    *,
    calls: Collection[str],
    facets: Collection[str],
    rules: Collection[str],
    clauses: Collection[str],
    where: Collection[str],
    constants: Mapping[str, int] | None = None,
) -> tuple[NamedMistake, ...]:
    """Do what `load` does, but name the predicates, which are code: `where` has all that there are."""
    if not path.exists():
        return ()
    file = TomlTable.read(path, RubricError, constants)
    file.check_keys(("kinds", "mistakes"))
    rows = file.rows("mistakes")
    lab = _Known(
        calls=calls,
        facets=sorted(facets),
        rules=sorted(rules),
        clauses=clauses,
        where=where,
        kinds=_kinds(file),
    )
    mistakes = [_mistake(row, lab) for row in rows]
    if not file.problems:
        for row, earlier in _unreachable(mistakes):
            line = line_of(file.text, "mistakes", "mistakes", earlier)
            rows[row].complain("rule", f"never used: the entry of line {line} fits whatever this one fits")
    file.check()
    return tuple(mistakes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the entries of a file may name."""

    calls: Collection[str]
    facets: Collection[str]
    rules: Collection[str]
    clauses: Collection[str]
    where: Collection[str]
    kinds: Mapping[str, frozenset[str]]
    """The words of the file that stand for several kinds."""


def _kinds(file: TomlTable) -> dict[str, frozenset[str]]:
    """Return the words of [kinds], each with what it stands for."""
    values = file.values.get("kinds", {})
    if not isinstance(values, dict):
        file.complain("kinds", 'kinds must be a table: write [kinds], and below it stops = ["crash", "hang"]')
        return {}
    table = replace(file, values=values, name="kinds")
    return {word: table.words(word, example="hang") for word in values}


def _mistake(row: TomlTable, lab: _Known) -> NamedMistake:
    row.check_keys(_KEYS)
    kinds = row.words("kinds", example="hang")
    where = row.choice("where", lab.where) if "where" in row.values else ""
    mistake = Mistake(
        rule=row.choice("rule", lab.rules),
        hint=_hint(row),
        calls=row.words("calls", lab.calls),
        facets=row.words("facets", lab.facets),
        kinds=frozenset[str]().union(*(lab.kinds.get(kind, {kind}) for kind in kinds)),
        circumstances=row.words("circumstances", example="refused"),
        tags=row.words("tags", example="refused"),
        part=_text(row, "part"),
        clause=_sentence(row, lab),
        never=row.words("never", lab.calls),
    )
    return mistake, where


def _sentence(row: TomlTable, lab: _Known) -> str | dict[str, str]:
    """Return the name of the handout's sentence, or such a name for each call."""
    value = row.values.get("sentence", "")
    by_call = value if isinstance(value, dict) else {"": value}
    for call, name in by_call.items():
        if call and call not in lab.calls:
            row.complain("sentence", f"unknown call {short(call)} in the sentence{row.hint(call, lab.calls)}")
        if (name or call) and (not isinstance(name, str) or name not in lab.clauses):
            row.complain("sentence", f"unknown sentence {short(str(name))}{row.hint(name, lab.clauses)}")
    return value if isinstance(value, dict | str) else ""


def _hint(row: TomlTable) -> str:
    """Return the hint, and report names in braces that mean nothing."""
    hint = row.sentence("hint", '"...", what to look at')
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


def _text(row: TomlTable, key: str) -> str:
    value = row.values.get(key, "")
    if not isinstance(value, str):
        row.complain(key, f"{key} must be text in quotes")
        return ""
    return value


def _unreachable(mistakes: Sequence[NamedMistake]) -> Iterator[tuple[int, int]]:
    """Yield the rows that can never be used, each with an earlier row that is at least as general."""
    for row, mistake in enumerate(mistakes):
        earlier = next((place for place, other in enumerate(mistakes[:row]) if _covers(other, mistake)), None)
        if earlier is not None:
            yield row, earlier


def _covers(first: NamedMistake, second: NamedMistake) -> bool:
    """Whether each condition of the first holds wherever those of the second hold.

    An empty set of calls, facets or kinds means any of them.
    """
    (general, where), (special, special_where) = first, second
    return (
        general.tags <= special.tags
        and general.circumstances <= special.circumstances
        and (not general.facets or (bool(special.facets) and special.facets <= general.facets))
        and (not general.kinds or (bool(special.kinds) and special.kinds <= general.kinds))
        and (not general.calls or (bool(special.calls) and special.calls <= general.calls))
        and general.never <= special.never
        and general.part in special.part
        and where in ("", special_where)
    )
