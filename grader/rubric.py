"""The rubric: which rules there are, what each is worth, and what its cases are judged on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.errors import Problem, RubricError

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["Judged", "Rubric", "Rule", "load", "load_clauses"]


class Judged(StrEnum):
    """What a rule is judged by."""

    CASES = "cases"  # the cases that name it, on its facets
    BUILD = "build"  # compiling and linking
    LEAK = "leak"  # every case: is anything lost?
    MEMORY_ERROR = "memory-error"  # every case: a bad access, a bad free, a crash?


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
    """Only differences at these operations count; empty: at all."""
    covers_cleanup: bool
    """Is a crash in the clean-up that ends every case its business?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """All rules, in the file's order."""

    seed: int
    rules: tuple[Rule, ...]

    @property
    def max_score(self) -> int:
        """The points of all rules."""
        return sum(rule.points for rule in self.rules)

    def rule(self, rule_id: str) -> Rule:
        """The rule of that id. Raises `KeyError` when there is none."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        raise KeyError(rule_id)

    def judged(self, judged: Judged) -> str:
        """The id of the first rule that is judged that way, "" when there is none."""
        return next((rule.id for rule in self.rules if rule.judged is judged), "")


def load(path: Path, facets: frozenset[str], calls: Collection[str]) -> Rubric:
    """Load a rubric for records with these facets and cases of these calls.

    Raises `RubricError` with all mistakes.
    """
    text, values = _read(path)
    from pydantic import BaseModel, ConfigDict, Field, ValidationError  # noqa: PLC0415 - slow to import

    class RuleFile(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        points: int = Field(ge=0)
        title: str
        handout: str
        facets: list[str] = []
        judged: str = "cases"
        calls: list[str] = []
        covers_cleanup: bool = False

    class RubricFile(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        seed: int = Field(ge=0, lt=2**31)
        rules: dict[str, RuleFile]

    try:
        file = RubricFile.model_validate(values)
    except ValidationError as error:
        raise RubricError(_problems(path, text, error)) from None
    problems = []
    for name, rule in file.rules.items():
        line = _line(text, ("rules", name))
        if rule.judged not in list(Judged):
            problems.append(Problem(path, line, f"judged of {name} must be one of: {', '.join(Judged)}"))
        elif (rule.judged == Judged.CASES) != bool(rule.facets):
            problems.append(Problem(path, line, f'{name} needs either facets or judged = "build" and the like'))
        problems += [
            Problem(path, line, f"unknown facet '{facet}' of {name}; one of: {', '.join(sorted(facets))}")
            for facet in rule.facets
            if facet not in facets
        ]
        problems += [
            Problem(path, line, f"unknown call '{call}' of {name}; one of: {', '.join(calls)}")
            for call in rule.calls
            if call not in calls
        ]
    total = sum(rule.points for rule in file.rules.values())
    if total != 100:
        problems.append(Problem(path, 1, f"the points of all rules sum to {total}; they must sum to 100"))
    if problems:
        raise RubricError(problems)
    rules = [
        Rule(
            id=name,
            points=rule.points,
            title=rule.title,
            handout=rule.handout,
            facets=frozenset(rule.facets),
            judged=Judged(rule.judged),
            calls=frozenset(rule.calls),
            covers_cleanup=rule.covers_cleanup,
        )
        for name, rule in file.rules.items()
    ]
    return Rubric(seed=file.seed, rules=tuple(rules))


def load_clauses(path: Path) -> dict[str, str]:
    """The sentences of the handout by their names. Raises `RubricError`."""
    text, values = _read(path)
    clauses = values.get("clauses")
    if not isinstance(clauses, dict) or not all(isinstance(clause, str) for clause in clauses.values()):
        raise RubricError([Problem(path, _line(text, ("clauses",)), 'write a table [clauses] of name = "sentence"')])
    return clauses


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise RubricError([Problem(path, 1, f"cannot be read: {error.strerror}")]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        place = re.search(r"line (\d+)", str(error))
        raise RubricError([Problem(path, int(place.group(1)) if place else 1, f"is not TOML: {error}")]) from None


def _problems(path: Path, text: str, error: ValidationError) -> list[Problem]:
    found = []
    for detail in error.errors():
        location = tuple(str(part) for part in detail["loc"])
        found.append(Problem(path, _line(text, location), f"{'.'.join(location)}: {detail['msg']}"))
    return sorted(found, key=lambda problem: problem.line)


def _line(text: str, location: tuple[str, ...]) -> int:
    """The line of a key such as ("rules", "cow", "points"): the deepest part that can be found."""
    line, rest = 1, text
    header = ".".join(location[:2]) if location[:1] == ("rules",) else location[0]
    match = re.search(rf"^\[{re.escape(header)}\]", text, re.MULTILINE)
    if match:
        line, rest = text.count("\n", 0, match.start()) + 1, text[match.start() :]
    key = re.search(rf"^\s*{re.escape(location[-1])}\s*=", rest, re.MULTILINE)
    if key:
        line += rest.count("\n", 0, key.end())
    return line
