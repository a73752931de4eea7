"""Load a rubric, and the sentences of a handout."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

from grader.assignment.input_file import TomlTable, cut, line_of, short
from grader.core.case import Number
from grader.core.errors import RubricError
from grader.core.rubric import Release, Rubric, Rule
from grader.core.verdict import Feedback, Judged

RUBRIC_FILE = "rubric.toml"
"""The rubric in a folder of cases."""

SEED = Number("seed", 0, 2**31 - 1)
_POINTS = Number("points", 0, 100)
_HAND_INS = Number("hand_ins", 1, 1000)
_TIME = "from = 2026-12-01T00:00:00Z"
_AT, _ANY = " at ", "any"


def load(
    path: Path, facets: frozenset[str], calls: Collection[str], constants: Mapping[str, int] | None = None
) -> Rubric:
    """Load a rubric for records with these facets and cases with these calls; titles may name `constants` in braces.

    Raises `RubricError` with all mistakes.
    """
    file = TomlTable.read(path, RubricError, constants)
    file.check_keys(("seed", "feedback", "release", "rules"))
    seed = file.number("seed", SEED, needed=True)
    rules = [_rule(name, table, facets, calls) for name, table in file.tables("rules").items()]
    rubric = Rubric(
        seed=seed or 0,
        rules=tuple(rules),
        feedback=_feedback(file, Feedback.FULL),
        releases=tuple(_release(table) for table in file.rows("release")),
    )
    if not file.problems:
        for line, message in _of_the_whole(rubric, file.text):
            file.complain_at(line, message)
    file.check()
    return rubric


def load_clauses(path: Path, constants: Mapping[str, int] | None = None) -> dict[str, str]:
    """Load the sentences of the handout, by name; they may name `constants` in braces. Raises `RubricError`."""
    return _sentences(path, "clauses", constants)


def load_situations(path: Path, constants: Mapping[str, int] | None = None) -> dict[str, str]:
    """Load the sentences for situations of calls, by their words; there may be none. Raises `RubricError`."""
    return _sentences(path, "situations", constants, {})


def _sentences(
    path: Path, name: str, constants: Mapping[str, int] | None, default: Mapping[str, str] | None = None
) -> dict[str, str]:
    file = TomlTable.read(path, RubricError, constants)
    clauses = file.values.get(name, default)
    if not isinstance(clauses, dict) or not all(isinstance(clause, str) for clause in clauses.values()):
        file.complain(name, f'write a table [{name}] of name = "sentence"')
        raise RubricError(file.problems)
    table = replace(file, values=clauses, name=name)
    clauses = {name: table.filled(name, clause) for name, clause in clauses.items()}
    file.check()
    return clauses


def _feedback(table: TomlTable, default: str = "") -> Feedback:
    return Feedback(table.choice("feedback", [member.value for member in Feedback], default) or Feedback.FULL)


def _release(table: TomlTable) -> Release:
    table.check_keys(("from", "hand_ins", "feedback"))
    start, hand_ins = table.values.get("from"), table.number("hand_ins", _HAND_INS)
    if start is not None and (not isinstance(start, datetime) or start.tzinfo is None):
        table.complain("from", f"release.from must be a time with its zone: write {_TIME}")
        start = None
    elif start is None and "hand_ins" not in table.values:
        table.complain("from", f"a release needs a time or a number of hand-ins: write {_TIME} or hand_ins = 3")
    return Release(feedback=_feedback(table), start=start, hand_ins=hand_ins or 0)


def _rule(name: str, table: TomlTable, facets: Collection[str], calls: Collection[str]) -> Rule:
    before = len(table.problems)
    table.check_keys([field.name for field in fields(Rule) if field.name not in ("id", "facets_at")])
    everywhere, facets_at = _facets(table, facets, calls)
    rule = Rule(
        id=name,
        points=table.number("points", _POINTS, needed=True) or 0,
        title=table.sentence("title", '"...", what a correct program does'),
        handout=table.string("handout", '"Task 4; Part 2.2", where the handout requires it'),
        facets=everywhere,
        facets_at=facets_at,
        judged=Judged(table.choice("judged", [member.value for member in Judged], Judged.CASES) or Judged.CASES),
        calls=table.words("calls", calls),
        allocated_by=table.words("allocated_by", calls),
        covers_cleanup=table.switch("covers_cleanup"),
    )
    if len(table.problems) == before and (rule.judged is Judged.CASES) != bool(rule.facets | rule.facets_at):
        table.complain("judged", f'{cut(table.name)} needs either facets or judged = "build" and the like')
    return rule


def _facets(
    table: TomlTable, facets: Collection[str], calls: Collection[str]
) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Return what a rule is judged on: "free" at all its calls, "free at touch" there, "any at touch" all there."""
    words = table.values.get("facets", [])
    several = isinstance(words, list) and all(isinstance(word, str) for word in words)
    pairs = [word.split(_AT) for word in words if _AT in word] if several else []
    alone = replace(table, values={"facets": [word for word in words if _AT not in word] if several else words})
    for pair in pairs:
        for word, known in zip(pair, ((*facets, _ANY), calls), strict=False):
            if word not in known or len(pair) != 2:
                table.complain("facets", f"unknown word {short(word)} in {table.name}.facets{table.hint(word, known)}")
    at = frozenset((facet, call) for facet, *_, call in pairs if facet != _ANY)
    return alone.words("facets", sorted(facets)), at | {
        (facet, call) for word, *_, call in pairs if word == _ANY for facet in facets
    }


def _of_the_whole(rubric: Rubric, text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for mistakes of the rubric as a whole, after each rule alone was found right."""
    if rubric.max_score != 100:
        yield 1, f"the points of all rules sum to {rubric.max_score}; they must sum to 100"
    for judged in (Judged.BUILD, Judged.LEAK, Judged.MEMORY_ERROR):
        ids = [rule.id for rule in rubric.rules if rule.judged is judged]
        if not ids and judged is Judged.BUILD:  # memory is judged only where a language leaves it to the program
            yield 1, f'no rule is judged by {judged}; write judged = "{judged}" in one'
        for rule_id in ids[1:]:
            line = line_of(text, "judged", f"rules.{rule_id}")
            yield line, f"{cut(ids[0])} is judged by {judged} already, not {cut(rule_id)}"
