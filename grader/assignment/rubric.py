"""The rubric: its rules, the points of each rule, and what the cases of a rule are judged on.

Rules are judged by their own cases, by the build, or by what is found in every case (leaks, memory errors). A program
that does nothing shows none of these findings. So a rule of the last kind earns no greater share of its points than the
*other rules* earned of theirs, rounded up. The other rules are those that are judged by their own cases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from grader.assignment import toml_source
from grader.assignment.toml_table import Table
from grader.core.case import Number
from grader.core.errors import Problem, RubricError
from grader.core.verdict import Judged
from grader.system.text_file import cut

__all__ = ["SEED", "Rubric", "Rule", "load", "load_clauses"]

SEED = Number("seed", 0, 2**31 - 1)
_POINTS = Number("points", 0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the rubric."""

    id: str
    points: int
    title: str
    handout: str
    facets: frozenset[str]
    judged: Judged
    calls: frozenset[str]
    """Only differences at these operations count; empty: at all operations."""
    allocated_by: frozenset[str]
    """Of lost memory only what these operations allocated counts; empty: all of it."""
    covers_cleanup: bool
    """Whether a crash in the clean-up that ends every case counts for this rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """All rules, in the file's order."""

    seed: int
    rules: tuple[Rule, ...]

    @property
    def max_score(self) -> int:
        """The sum of the points of all rules."""
        return sum(rule.points for rule in self.rules)

    def rule(self, rule_id: str) -> Rule:
        """Return the rule with that id. Raises `KeyError` when there is none."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        raise KeyError(rule_id)

    def judged(self, judged: Judged) -> str:
        """Return the id of the only rule that is judged that way; not for `Judged.CASES`, which most rules have."""
        return next(rule.id for rule in self.rules if rule.judged is judged)


def load(path: Path, facets: frozenset[str], calls: Collection[str]) -> Rubric:
    """Load a rubric for records with these facets and cases with these calls.

    Raises `RubricError` with all mistakes.
    """
    text, values = toml_source.read(path, RubricError)
    file = Table(path=path, text=text, values=values, problems=[])
    file.check_keys(("seed", "rules"))
    seed = file.number("seed", SEED, needed=True)
    rules = [_rule(name, table, facets, calls) for name, table in file.tables("rules").items()]
    rubric = Rubric(seed=seed or 0, rules=tuple(rules))
    problems = file.problems or [Problem(path, line, message) for line, message in _of_the_whole(rubric, text)]
    if problems:
        raise RubricError(sorted(problems, key=lambda problem: problem.line))
    return rubric


def load_clauses(path: Path) -> dict[str, str]:
    """Load the sentences of the handout, by name. Raises `RubricError`."""
    text, values = toml_source.read(path, RubricError)
    clauses = values.get("clauses")
    if not isinstance(clauses, dict) or not all(isinstance(clause, str) for clause in clauses.values()):
        line = toml_source.line_of(text, "clauses")
        raise RubricError([Problem(path, line, 'write a table [clauses] of name = "sentence"')])
    return clauses


def _rule(name: str, table: Table, facets: Collection[str], calls: Collection[str]) -> Rule:
    before = len(table.problems)
    table.check_keys([field.name for field in fields(Rule) if field.name != "id"])
    rule = Rule(
        id=name,
        points=table.number("points", _POINTS, needed=True) or 0,
        title=table.string("title", '"...", what a right program does'),
        handout=table.string("handout", '"Task 4; Part 2.2", where it is demanded'),
        facets=table.words("facets", sorted(facets)),
        judged=Judged(table.chosen("judged", [member.value for member in Judged], Judged.CASES) or Judged.CASES),
        calls=table.words("calls", calls),
        allocated_by=table.words("allocated_by", calls),
        covers_cleanup=table.switch("covers_cleanup"),
    )
    if len(table.problems) == before and (rule.judged is Judged.CASES) != bool(rule.facets):
        table.complain("judged", f'{cut(table.name)} needs either facets or judged = "build" and the like')
    return rule


def _of_the_whole(rubric: Rubric, text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for mistakes of the rubric as a whole, after each rule alone was found right."""
    if rubric.max_score != 100:
        yield 1, f"the points of all rules sum to {rubric.max_score}; they must sum to 100"
    for judged in (Judged.BUILD, Judged.LEAK, Judged.MEMORY_ERROR):
        ids = [rule.id for rule in rubric.rules if rule.judged is judged]
        if not ids:
            yield 1, f'no rule is judged by {judged}; write judged = "{judged}" in one'
        for one in ids[1:]:
            line = toml_source.line_of(text, "judged", f"rules.{one}")
            yield line, f"{cut(ids[0])} is judged by {judged} already, not {cut(one)}"
