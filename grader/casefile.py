"""Case files: what is asked. A case is a short trace of operations, each with the reply its author claims.

The replies are read from the handout by a person; a claim that the reference engine contradicts makes the case
invalid before any student is involved. All mistakes of a file are reported at once, as `path:line: message`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from grader import tomlfile
from grader.caselines import OperationReader, suggestion
from grader.errors import CaseFileError, Problem
from grader.grammar import Case, Grammar, Number
from grader.verdict import Visibility
from reference.model import CannotGoOn, CannotPoke
from reference.operation import Operation, Trace

__all__ = ["load", "load_folder"]


def load_folder(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Load all cases below `folder` whose name matches `pattern`, in the order of their names.

    Raises `CaseFileError` with the mistakes of all files.
    """
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in sorted(folder.glob("*/*.toml")):
        if _fits(path, pattern):
            try:
                cases.append(load(path, grammar, seed=seed))
            except CaseFileError as error:
                problems += error.problems
    if problems:
        raise CaseFileError(problems)
    return cases


def load(path: Path, grammar: Grammar, *, seed: int) -> Case:
    """Load one case file. Raises `CaseFileError` with all its mistakes."""
    return _Reader(path, grammar).case(seed)


def _fits(path: Path, pattern: str) -> bool:
    """Is the pattern one of this case's name, or of its folder and its name?"""
    folder, slash, name = pattern.rpartition("/")
    return fnmatchcase(path.stem, name) and (not slash or fnmatchcase(path.parent.name, folder))


@dataclass(slots=True)
class _Header:
    title: str = ""
    handout: tuple[str, ...] = ()
    rule: str = ""
    visibility: Visibility = Visibility.PUBLIC
    weight: int = 1
    settings: dict[str, int] = field(default_factory=dict)


class _Reader:
    """Reads one case file and gathers what is wrong with it."""

    def __init__(self, path: Path, grammar: Grammar) -> None:
        self.path = path
        self.grammar = grammar
        self.text = ""
        self.problems: list[Problem] = []

    def case(self, seed: int) -> Case:
        self.text, values = tomlfile.read(self.path, CaseFileError)
        header = self._header(values)
        operations = list(self._operations(values))
        if not self.problems:
            for key, message in self.grammar.complete(header.settings, operations):
                self._complain(self._line_of(key), message)
        trace = Trace(operations=tuple(operations), settings={**header.settings, "seed": seed})
        for check in (self._check_targets, self._check_claims, self._check_success):
            if not self.problems:  # a later check would only echo what an earlier one found
                check(trace)
        if self.problems:
            raise CaseFileError(sorted(self.problems, key=lambda problem: problem.line))
        return Case(
            name=f"{self.path.parent.name}/{self.path.stem}",
            path=self.path,
            title=header.title,
            handout=header.handout,
            rule=header.rule,
            visibility=header.visibility,
            weight=header.weight,
            trace=trace,
        )

    def _complain(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, message))

    def _complain_of(self, operation: Operation, message: str) -> None:
        """Once a line: what `repeat` makes of one line mostly fails alike."""
        if all(problem.line != operation.line for problem in self.problems):
            self._complain(operation.line, message)

    def _line_of(self, key: str) -> int:
        return tomlfile.line_of(self.text, key)

    def _header(self, values: dict[str, object]) -> _Header:
        header = _Header()
        known = ["title", "handout", "rule", "visibility", "weight", "operations", *self.grammar.settings]
        for key in values:
            if key not in known:
                self._complain(self._line_of(key), f"unknown key '{key}'{suggestion(key, known)}")
        header.title = self._string(values, "title", '"...", one sentence in plain words')
        header.rule = self._chosen(values, "rule", self.grammar.rules)
        visibility = self._chosen(values, "visibility", [member.value for member in Visibility])
        header.visibility = Visibility(visibility or "public")
        header.handout = self._clauses(values)
        header.weight = self._number(values, "weight", Number("weight", 1, 100)) or 1
        for key, number in self.grammar.settings.items():
            value = self._number(values, key, number)
            if value is not None:
                header.settings[key] = value
        return header

    def _string(self, values: dict[str, object], key: str, wanted: str) -> str:
        value = values.get(key)
        if not isinstance(value, str) or not value.strip():
            said = "is missing" if value is None else "is empty" if isinstance(value, str) else "must be text in quotes"
            self._complain(self._line_of(key), f"{key} {said}: write {key} = {wanted}")
            return ""
        return value

    def _chosen(self, values: dict[str, object], key: str, allowed: Sequence[str]) -> str:
        value = values.get(key)
        if value not in allowed:
            said = f"{key} is missing" if value is None else f"unknown {key} '{value}'"
            hint = suggestion(str(value), allowed) or f"; one of: {', '.join(allowed)}"
            self._complain(self._line_of(key), said + hint)
            return ""
        return str(value)

    def _number(self, values: dict[str, object], key: str, number: Number) -> int | None:
        value = values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value not in number:
            self._complain(self._line_of(key), f"{key} must be a whole number {number.values}, not {value!r}")
            return None
        return value

    def _clauses(self, values: dict[str, object]) -> tuple[str, ...]:
        text = self._string(values, "handout", '"Task 4/store; Part 2.2/offset", the clauses that it tests')
        clauses = tuple(part.strip() for part in text.split(";") if part.strip())
        if text and not clauses:
            self._complain(self._line_of("handout"), "handout names no clause")
        for clause in clauses:
            if clause not in self.grammar.clauses:
                hint = suggestion(clause, self.grammar.clauses)
                self._complain(self._line_of("handout"), f"unknown clause '{clause}' of the handout{hint}")
        return clauses

    def _operations(self, values: dict[str, object]) -> Iterator[Operation]:
        text = self._string(values, "operations", "'''...''', one a line")
        below = re.search(r"^[ \t]*operations[ \t]*=[ \t]*('''|\"\"\")\r?\n", self.text, re.MULTILINE)
        first = self._line_of("operations") + (1 if below else 0)
        yield from OperationReader(self.grammar, self._complain).read(text, first)

    def _check_targets(self, trace: Trace) -> None:
        """Engines are opened before they are used, and not used once closed."""
        alive: set[int] = set()
        for operation in trace.operations:
            signature = self.grammar.operations[operation.name]
            target = operation.target
            if target is None:
                continue
            if signature.opens:
                if target in alive:
                    self._complain_of(
                        operation, f"engine @{target} is still alive; destroy it first or use another number"
                    )
                if operation.claim not in ("NULL", "-1"):
                    alive.add(target)
            elif target not in alive:
                self._complain_of(operation, f"engine @{target} is not alive here; create it first, or write @NULL")
            if signature.closes:
                alive.discard(target)

    def _check_claims(self, trace: Trace) -> None:
        """Does the reference answer what the author read from the handout? After a false claim it still goes on."""
        model = self.grammar.model(trace)
        for operation in trace.operations:
            try:
                reply = model.apply(operation)
            except (CannotPoke, CannotGoOn) as error:
                self._complain_of(operation, f"'{operation}' does not fit the state here: {error}")
                return
            if operation.claim is not None and reply.text != operation.claim:
                self._complain_of(
                    operation,
                    f"'{operation}' claims {operation.claim}, the reference returns {reply.text} ({reply.clause})",
                )

    def _check_success(self, trace: Trace) -> None:
        """A program that refuses everything must not pass."""
        claims = [operation.claim for operation in trace.operations if not operation.implicit]
        if all(claim in ("NULL", "-1", None) for claim in claims) and all(not o.implicit for o in trace.operations):
            self._complain(self._line_of("operations"), "every call is refused; add calls that must succeed")
