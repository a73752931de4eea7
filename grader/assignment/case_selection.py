"""Select the cases to run: all cases of an assignment, or its public part.

In the public part hidden cases are not run, but their weight counts. So the earned points are certain, whatever the
hidden cases would show. The bundle for students contains no hidden case; there a file beside the rubric gives the
weights of the hidden cases, and nothing else about them.

A score without hidden cases would be mistaken for the final one. Rounding must not hide a public case that fails
either: it costs one point where its share is less.

Loaded cases, with what the reference does in them, are stored between runs (grader.assignment.stored): neither changes
while its files stay as they are, and reading and playing those of a lab takes up to 7 s. They depend on the case files
and what is beside them, the seed, the reference, and the code that loads cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.assignment import case_files
from grader.assignment.input_file import TomlTable
from grader.assignment.lab import Lab
from grader.assignment.stored import stored
from grader.core.case import Case, Grammar, Number
from grader.core.errors import CaseFileError, FileProblem, InputError, RubricError, UsageError
from grader.core.rubric import Rubric
from grader.core.verdict import Judged, Visibility

HIDDEN_FILE = "hidden.toml"
"""The file with the weights of the hidden cases; it is beside the rubric where these cases are left out."""

_KEY = "weights"
_WEIGHT = Number("weight", 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSelection:
    """The cases that are run."""

    cases: tuple[Case, ...]
    hidden: Mapping[str, int] | None = None
    """For the public part: the weight of the hidden cases, by rule. None: no case is left out for being hidden."""


def select_cases(lab: Lab, *, seed: int, pattern: str = "*", public_only: bool = False) -> CaseSelection:
    """Return the cases whose name matches; without hidden ones if `public_only` is set or `HIDDEN_FILE` replaces them.

    The `pattern` then selects public cases only and does not change the weight of the hidden ones. Raises `UsageError`
    when no case matches, `CaseFileError`, and `RubricError` when `HIDDEN_FILE` is wrong.
    """
    selection = _part(lab, seed=seed, pattern=pattern, public_only=public_only)
    if not selection.cases:
        raise UsageError(f"no case matches '{pattern}'; `grade cases` lists them all")
    return selection


def _part(lab: Lab, *, seed: int, pattern: str, public_only: bool) -> CaseSelection:
    known = hidden_weights(lab)
    cases = load_cases(lab.cases, lab.grammar, seed=seed, pattern=pattern)
    hidden = [case for case in cases if case.visibility is Visibility.HIDDEN]
    if known is not None:
        if hidden:
            message = f'visibility = "hidden", but {HIDDEN_FILE} says that hidden cases are elsewhere'
            raise CaseFileError([FileProblem(case.path, 1, message) for case in hidden])
        return CaseSelection(cases=tuple(cases), hidden=known)
    if not public_only:
        return CaseSelection(cases=tuple(cases))
    every = cases if pattern == "*" else load_cases(lab.cases, lab.grammar, seed=seed)
    public = tuple(case for case in cases if case.visibility is Visibility.PUBLIC)
    return CaseSelection(cases=public, hidden=weights(lab.rubric, every))


def weights(rubric: Rubric, cases: Iterable[Case]) -> dict[str, int]:
    """Return the weight of the hidden ones among these cases, for each rule that is not judged by the build."""
    hidden = [case for case in cases if case.visibility is Visibility.HIDDEN]
    return {
        rule.id: sum(case.weight for case in hidden if case.rule == rule.id)
        if rule.judged is Judged.CASES
        else len(hidden)
        for rule in rubric.rules
        if rule.judged is not Judged.BUILD
    }


def hidden_text(known: Mapping[str, int]) -> str:
    """Return the text of the file that replaces the hidden cases."""
    lines = [
        "# The hidden cases are not included. These are their weights in the final grading, for each rule,",
        "# so that a report can show which points are certain. Nothing here tells what the cases ask.",
        "",
        f"[{_KEY}]",
        *(f"{rule} = {weight}" for rule, weight in known.items()),
    ]
    return "\n".join(lines) + "\n"


def hidden_weights(lab: Lab) -> dict[str, int] | None:
    """Return the weights in the file that replaces the hidden cases, by rule; None when there is no such file."""
    path = lab.cases / HIDDEN_FILE
    if not path.exists():
        return None
    rules = [rule.id for rule in lab.rubric.rules if rule.judged is not Judged.BUILD]
    file = TomlTable.read(path, RubricError)
    file.check_keys((_KEY,))
    inner = file.values.get(_KEY)
    if not isinstance(inner, dict):
        file.complain(_KEY, f"write a table [{_KEY}] with a line RULE = NUMBER for each rule")
        raise RubricError(file.problems)
    table = replace(file, values=inner, name=_KEY)
    table.check_keys(rules)
    known = {rule: table.number(rule, _WEIGHT, needed=True) or 0 for rule in rules}
    file.check()
    return known


def load_cases(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Do what `case_files.load_folder` does, from the stored cases where there are any.

    Raises `InputError` where all cases together show that something is wrong with the lab itself.
    """

    def files() -> Iterable[Path]:
        return [*grammar.code, *sorted(folder.glob("*.toml")), *case_files.paths(folder, pattern)]

    def loaded() -> list[Case]:
        cases = case_files.load_folder(folder, grammar, seed=seed, pattern=pattern)
        problems = list(grammar.check(cases)) if pattern == "*" else []
        if problems:
            raise InputError("\n".join(f"{folder}: {problem}" for problem in problems))
        return _shared(cases)

    return stored("cases", (str(folder), seed, pattern), files, loaded)


def _shared(cases: Iterable[Case]) -> list[Case]:
    """Return the cases with one object for all equal replies and spans: so they are stored, and made, once."""
    seen: dict[object, Any] = {}

    def first(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(seen.setdefault(value, value) for value in values)

    return [
        replace(case, expected=replace(right, replies=first(right.replies), allowed=first(right.allowed)))
        for case in cases
        for right in [case.expected]
    ]
