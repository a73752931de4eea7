"""The rubric: which rules there are, what each is worth, and what its cases are judged on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from grader import tomlfile
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
        """The id of the one rule that is judged that way; not for `Judged.CASES`, by which most are."""
        return next(rule.id for rule in self.rules if rule.judged is judged)


def load(path: Path, facets: frozenset[str], calls: Collection[str]) -> Rubric:
    """Load a rubric for records with these facets and cases of these calls.

    Raises `RubricError` with all mistakes.
    """
    text, values = tomlfile.read(path, RubricError)
    import pydantic  # noqa: PLC0415 - slow to import
    from pydantic_core import PydanticCustomError  # noqa: PLC0415

    def one_of(what: str, known: Collection[str]) -> pydantic.AfterValidator:
        def check(word: str) -> str:
            if word not in known:
                raise PydanticCustomError("unknown", f"unknown {what} '{word}'; one of: {', '.join(known)}")
            return word

        return pydantic.AfterValidator(check)

    one_facet = Annotated[str, one_of("facet", sorted(facets))]
    one_call = Annotated[str, one_of("call", calls)]

    class RuleFile(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid", strict=True)
        points: int = pydantic.Field(ge=0)
        title: str
        handout: str
        facets: list[one_facet] = []
        judged: Judged = pydantic.Field(Judged.CASES, strict=False)
        calls: list[one_call] = []
        covers_cleanup: bool = False

        @pydantic.model_validator(mode="after")
        def judged_by_one_thing(self) -> RuleFile:
            if (self.judged is Judged.CASES) != bool(self.facets):
                raise PydanticCustomError("judged", 'needs either facets or judged = "build" and the like')
            return self

    class RubricFile(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid", strict=True)
        seed: int = pydantic.Field(ge=0, lt=2**31)
        rules: dict[str, RuleFile]

    try:
        file = RubricFile.model_validate(values)
    except pydantic.ValidationError as error:
        raise RubricError(_problems(path, text, error)) from None
    rules = [
        Rule(id=name, **{**vars(rule), "facets": frozenset(rule.facets), "calls": frozenset(rule.calls)})
        for name, rule in file.rules.items()
    ]
    rubric = Rubric(seed=file.seed, rules=tuple(rules))
    problems = [Problem(path, line, message) for line, message in _of_the_whole(rubric, text)]
    if problems:
        raise RubricError(problems)
    return rubric


def load_clauses(path: Path) -> dict[str, str]:
    """The sentences of the handout by their names. Raises `RubricError`."""
    text, values = tomlfile.read(path, RubricError)
    clauses = values.get("clauses")
    if not isinstance(clauses, dict) or not all(isinstance(clause, str) for clause in clauses.values()):
        line = tomlfile.line_of(text, "clauses")
        raise RubricError([Problem(path, line, 'write a table [clauses] of name = "sentence"')])
    return clauses


def _problems(path: Path, text: str, error: ValidationError) -> list[Problem]:
    found = []
    for detail in error.errors():
        location = [part for part in detail["loc"] if isinstance(part, str)]  # without places in a list
        table = ".".join(location[:2]) if location[:1] == ["rules"] and len(location) > 1 else ""
        line = tomlfile.line_of(text, location[-1], table)
        found.append(Problem(path, line, f"{'.'.join(location)}: {detail['msg']}"))
    return sorted(found, key=lambda problem: problem.line)


def _of_the_whole(rubric: Rubric, text: str) -> Iterator[tuple[int, str]]:
    """What rules that are right one by one do wrong together: line and message."""
    if rubric.max_score != 100:
        yield 1, f"the points of all rules sum to {rubric.max_score}; they must sum to 100"
    for judged in (Judged.BUILD, Judged.LEAK, Judged.MEMORY_ERROR):
        ids = [rule.id for rule in rubric.rules if rule.judged is judged]
        if not ids:
            yield 1, f'no rule is judged by {judged}; write judged = "{judged}" in one'
        for one in ids[1:]:
            yield tomlfile.line_of(text, "judged", f"rules.{one}"), f"{ids[0]} is judged by {judged} already, not {one}"
