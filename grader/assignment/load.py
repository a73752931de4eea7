"""Load case files; a case is a short trace of operations, each with the reply that its author claims.

A person reads the replies from the handout. A claim that the reference engine contradicts makes the case invalid
before any student is involved. All mistakes of a file are reported at once, as `path:line: message`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from grader.assignment import toml_source
from grader.assignment.operations import OperationReader
from grader.assignment.toml_table import Table
from grader.core.case import Case, Expected, Generated, Grammar, Number
from grader.core.errors import CaseFileError, Problem
from grader.core.model import Step, play
from grader.core.verdict import Visibility
from grader.system.text_file import short
from reference.operation import Operation, Trace
from reference.oracle import CannotGoOn, CannotPoke

_GENERATED = frozenset({"seeds", "length"})
"""The keys of a case of random traces, in the place of operations."""
_SEEDS = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_MOST_SEEDS = 5_000
_LENGTH = Number("length", 1, 500)


def load_folder(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Load all cases below `folder` whose name matches `pattern`, in the order of their names.

    Raises `CaseFileError` with the mistakes of all files.
    """
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in paths(folder, pattern):
        try:
            cases.append(load(path, grammar, seed=seed))
        except CaseFileError as error:
            problems += error.problems
    if problems:
        raise CaseFileError(problems)
    return cases


def paths(folder: Path, pattern: str = "*") -> list[Path]:
    """The case files below `folder` whose name matches, in the order of their names."""
    return [path for path in sorted(folder.glob("*/*.toml")) if _fits(path, pattern)]


def load(path: Path, grammar: Grammar, *, seed: int) -> Case:
    """Load one case file. Raises `CaseFileError` with all its mistakes."""
    text, values = toml_source.read(path, CaseFileError)
    return _Reader(Table(path=path, text=text, values=values, problems=[]), grammar).case(seed)


def _fits(path: Path, pattern: str) -> bool:
    """Whether the pattern matches this case's name, or its folder and its name."""
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
    """Reads one case file and collects its mistakes."""

    def __init__(self, table: Table, grammar: Grammar) -> None:
        self.table = table
        self.path = table.path
        self.grammar = grammar
        self.problems = table.problems
        self.wrong_lines: set[int] = set()

    def case(self, seed: int) -> Case:
        header = self._header()
        if self.table.values.keys() & _GENERATED:
            return self._generated(header, seed)
        operations = list(self._operations())
        if not self.problems:
            for key, message in self.grammar.complete(header.settings, operations):
                self.table.complain(key, message)
        trace = Trace(operations=tuple(operations), settings={**header.settings, "seed": seed})
        if not self.problems:  # a later check would only repeat what an earlier one found
            self._check_targets(trace)
        expected = Expected.of(self._played(trace) if not self.problems else ())
        if not self.problems:
            self._check_success(trace)
        return self._case(header, trace, expected)

    def _case(self, header: _Header, trace: Trace, expected: Expected, generated: Generated | None = None) -> Case:
        """Return the case. Raises `CaseFileError` with all mistakes of the file."""
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
            expected=expected,
            generated=generated,
        )

    def _generated(self, header: _Header, seed: int) -> Case:
        """Return a case of random traces, with what the reference does in each."""
        table, settings = self.table, {**header.settings, "seed": seed}
        generator = self.grammar.generate() if self.grammar.generate is not None else None
        if "operations" in table.values:
            table.complain("operations", "a case has either operations, or seeds and length of random traces")
        elif generator is None:
            table.complain("seeds", "this lab makes no random traces; write operations")
        length = table.number("length", _LENGTH, needed=True) or 0
        seeds = self._seeds()
        traces: list[tuple[Operation, ...]] = []
        line = table.line_of("seeds")
        digests = []
        for number in seeds if not self.problems else ():
            assert generator is not None
            traces.append(tuple(replace(operation, line=line) for operation in generator(number, length)))
            trace = Trace(operations=traces[-1], settings=settings)
            try:
                records = (step.record for step in play(self.grammar.model(trace), trace))
                digests.append(Generated.digest(records, self.grammar.every))
            except (CannotPoke, CannotGoOn) as error:
                table.complain("seeds", f"the reference cannot play the trace of seed {number}: {error}")
                break
        generated = Generated(seeds=seeds, length=length, traces=tuple(traces), digests=tuple(digests))
        return self._case(header, Trace(operations=(), settings=settings), Expected.of(()), generated)

    def _seeds(self) -> range:
        """The seeds of random traces, both ends included."""
        text = self.table.values.get("seeds")
        match = _SEEDS.fullmatch(text) if isinstance(text, str) else None
        first, last = (int(match[1]), int(match[2])) if match is not None else (1, 0)
        if not first <= last < first + _MOST_SEEDS:
            wanted = f'seeds = "1..1000", at most {_MOST_SEEDS} of them, from the first to the last'
            self.table.complain("seeds", f"seeds {'is missing' if text is None else 'cannot be read'}: write {wanted}")
            return range(0)
        return range(first, last + 1)

    def _complain(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, message))

    def _complain_of(self, operation: Operation, message: str) -> None:
        """Report one mistake for each line: the operations that `repeat` makes of one line mostly fail alike."""
        if operation.line not in self.wrong_lines:
            self.wrong_lines.add(operation.line)
            self._complain(operation.line, message)

    def _header(self) -> _Header:
        table = self.table
        kind = _GENERATED if table.values.keys() & _GENERATED else ()
        names = ["title", "handout", "rule", "visibility", "weight", "operations"]
        table.check_keys([*names, *kind, *self.grammar.settings])
        header = _Header()
        header.title = table.string("title", '"...", one sentence in plain words')
        header.rule = table.choice("rule", self.grammar.rules)
        visibility = table.choice("visibility", [member.value for member in Visibility])
        header.visibility = Visibility(visibility or "public")
        header.handout = self._clauses()
        header.weight = table.number("weight", Number("weight", 1, 100)) or 1
        for key, number in self.grammar.settings.items():
            value = table.number(key, number)
            if value is not None:
                header.settings[key] = value
        return header

    def _clauses(self) -> tuple[str, ...]:
        text = self.table.string("handout", '"Task 4/store; Part 2.2/offset", the clauses that it tests')
        clauses = tuple(part.strip() for part in text.split(";") if part.strip())
        if text and not clauses:
            self.table.complain("handout", "handout names no clause")
        for clause in clauses:
            if clause not in self.grammar.clauses:
                hint = self.table.hint(clause, self.grammar.clauses)
                self.table.complain("handout", f"unknown clause {short(clause)} of the handout{hint}")
        return clauses

    def _operations(self) -> Iterator[Operation]:
        text = self.table.string("operations", "'''...''', one a line")
        below = re.search(r"^[ \t]*operations[ \t]*=[ \t]*('''|\"\"\")\r?\n", self.table.text, re.MULTILINE)
        first = self.table.line_of("operations") + (1 if below else 0)
        yield from OperationReader(self.grammar, self._complain).read(text, first)

    def _check_targets(self, trace: Trace) -> None:
        """Check that engines are opened before they are used, and not used after they are closed."""
        if not any(signature.opens for signature in self.grammar.operations.values()):
            return
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
                if operation.claim not in signature.refusals:
                    alive.add(target)
            elif target not in alive:
                self._complain_of(operation, f"engine @{target} is not alive here; create it first, or write @NULL")
            if signature.closes:
                alive.discard(target)

    def _played(self, trace: Trace) -> Iterator[Step]:
        """Play the reference, and check that it replies what the author claims; it goes on after a false claim."""
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
            yield Step(operation, reply, model.record(), model.allowed())

    def _check_success(self, trace: Trace) -> None:
        """Check that some call must succeed: a program that refuses everything must not pass."""
        operations = self.grammar.operations
        if all(
            not operation.implicit and operation.claim in (None, *operations[operation.name].refusals)
            for operation in trace.operations
        ):
            self.table.complain("operations", "every call is refused; add calls that must succeed")
