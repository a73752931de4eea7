"""Case files: what is asked. A case is a short trace of operations, each with the reply its author claims.

The replies are read from the handout by a person; a claim that the reference engine contradicts makes the case
invalid before any student is involved. All mistakes of a file are reported at once, as `path:line: message`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.errors import CaseFileError, Problem
from grader.verdict import Visibility
from reference.model import CannotGoOn, CannotPoke, ModelFactory
from reference.operation import Argument, Operation, Trace

__all__ = ["Case", "Grammar", "Number", "Signature", "load", "load_folder", "trace_text"]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LINE = re.compile(r"(?:@(?P<target>\w+)\s+)?(?P<call>[^#>]*?)(?:\s*->\s*(?P<reply>[^#]*?))?\s*(?:#\s*(?P<comment>.*))?")
_REPEAT = re.compile(r"repeat\s+(?P<name>[a-z])\s+(?P<first>-?\d+)\.\.(?P<last>-?\d+)\s*:\s*(?P<rest>.+)")
_INDEX = re.compile(r"\{\s*([a-z])\s*(?:([+*-])\s*(\d+)\s*)?\}")
_MOST_OPERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class Number:
    """An argument: its name in the handout and the range that a case may use."""

    name: str
    least: int = _INT_MIN
    most: int = _INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How an operation is written. `replies` is empty for a poke, of which nothing is claimed."""

    arguments: tuple[Number, ...]
    replies: tuple[str, ...] = ()
    null_first: bool = False
    """May a NULL stand before the arguments (`llm_init NULL 64`)?"""
    null_target: bool = True
    """May it go to `@NULL`?"""
    opens: bool = False
    closes: bool = False

    @property
    def is_poke(self) -> bool:
        return not self.replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What a lab's case files may say."""

    operations: Mapping[str, Signature]
    settings: Mapping[str, Number]
    """Keys of the header that are numbers of the lab's own, such as `pool_blocks`."""
    most_targets: int
    clauses: Mapping[str, str]
    """The sentences of the handout that a case may name, with their text."""
    rules: tuple[str, ...]
    complete: Callable[[dict[str, int], list[Operation]], Iterator[tuple[str, str]]]
    """Adds the operations that a case leaves out; yields (key, message) for settings that do not fit."""
    model: ModelFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case, complete and checked against the reference."""

    name: str
    """Folder and file name without ending, such as `append/first_append_after_fork`."""
    path: Path
    title: str
    handout: tuple[str, ...]
    rule: str
    visibility: Visibility
    weight: int
    trace: Trace


def load_folder(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Load all cases below `folder` whose name matches `pattern`, in the order of their names.

    Raises `CaseFileError` with the mistakes of all files.
    """
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in sorted(folder.glob("*/*.toml")):
        name = f"{path.parent.name}/{path.stem}"
        if Path(name).match(pattern) or Path(path.stem).match(pattern):
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


def trace_text(operation: Operation) -> str:
    """An operation as a case file writes it, without reply."""
    return str(operation)


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
        values = self._parse()
        header = self._header(values)
        operations = list(self._operations(values.get("operations")))
        if not self.problems:
            for key, message in self.grammar.complete(header.settings, operations):
                self._complain(self._line_of(key), message)
        trace = Trace(operations=tuple(operations), settings={**header.settings, "seed": seed})
        if not self.problems:
            self._check_targets(trace)
        if not self.problems:
            self._check_claims(trace)
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

    def _line_of(self, key: str) -> int:
        match = re.search(rf"^\s*{re.escape(key)}\s*=", self.text, re.MULTILINE)
        return self.text.count("\n", 0, match.end()) + 1 if match else 1

    def _parse(self) -> dict[str, object]:
        try:
            self.text = self.path.read_text(encoding="utf-8")
            return tomllib.loads(self.text)
        except OSError as error:
            self._complain(1, f"cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self._complain(1, "is not UTF-8 text")
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"line (\d+)", str(error))
            line = int(place.group(1)) if place else self.text.count("\n") + 1
            self._complain(line, f"is not TOML: {error}")
        raise CaseFileError(self.problems)

    def _header(self, values: dict[str, object]) -> _Header:
        header = _Header()
        known = ["title", "handout", "rule", "visibility", "weight", "operations", *self.grammar.settings]
        for key in values:
            if key not in known:
                self._complain(self._line_of(key), f"unknown key '{key}'{_suggestion(key, known)}")
        header.title = self._string(values, "title", "one sentence in plain words")
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
            self._complain(self._line_of(key), f"{key} is missing: write {key} = \"...\", {wanted}")
            return ""
        return value

    def _chosen(self, values: dict[str, object], key: str, allowed: Sequence[str]) -> str:
        value = values.get(key)
        if value not in allowed:
            said = f"{key} is missing" if value is None else f"unknown {key} '{value}'"
            hint = _suggestion(str(value), allowed) or f"; one of: {', '.join(allowed)}"
            self._complain(self._line_of(key), said + hint)
            return ""
        return str(value)

    def _number(self, values: dict[str, object], key: str, number: Number) -> int | None:
        value = values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not number.least <= value <= number.most:
            self._complain(
                self._line_of(key), f"{key} must be a whole number from {number.least} to {number.most}, not {value!r}"
            )
            return None
        return value

    def _clauses(self, values: dict[str, object]) -> tuple[str, ...]:
        text = self._string(values, "handout", 'the clauses that it tests, such as "Task 4/oom; Part 2.2/offset"')
        clauses = tuple(part.strip() for part in text.split(";") if part.strip())
        for clause in clauses:
            if clause not in self.grammar.clauses:
                hint = _suggestion(clause, self.grammar.clauses)
                self._complain(self._line_of("handout"), f"unknown clause '{clause}' of the handout{hint}")
        return clauses

    def _operations(self, text: object) -> Iterator[Operation]:
        if not isinstance(text, str) or not text.strip():
            self._complain(self._line_of("operations"), "operations is missing: write operations = '''...''', one a line")
            return
        first = self._line_of("operations") + 1
        opening = re.search(r"^\s*operations\s*=\s*('''|\"\"\")(?!\r?\n)", self.text, re.MULTILINE)
        count = 0
        for line, written in enumerate(text.splitlines(), start=first - bool(opening)):
            for one in self._repeated(line, written.strip()):
                operation = self._operation(line, one)
                if operation is not None:
                    count += 1
                    yield operation
                if count > _MOST_OPERATIONS:
                    self._complain(line, f"more than {_MOST_OPERATIONS} operations; a case is a short story")
                    return

    def _repeated(self, line: int, written: str) -> Iterator[str]:
        if not written.startswith("repeat "):
            yield written
            return
        match = _REPEAT.fullmatch(written)
        if match is None:
            self._complain(line, "write: repeat i 2..301: fork_sequence 1 {i} -> seq")
            return
        for value in range(int(match["first"]), min(int(match["last"]), int(match["first"]) + _MOST_OPERATIONS) + 1):
            yield _INDEX.sub(lambda index, value=value: _indexed(index, match["name"], value), match["rest"])

    def _operation(self, line: int, written: str) -> Operation | None:
        match = _LINE.fullmatch(written)
        words = match["call"].split() if match else []
        if match is None or not words:
            if written and not written.startswith("#"):
                self._complain(line, f"cannot read '{written}'; write: append_kv 1 77 -> 0  # comment")
            return None
        name, *arguments = words
        signature = self.grammar.operations.get(name)
        if signature is None:
            hint = _suggestion(name, self.grammar.operations)
            self._complain(line, f"unknown operation '{name}'{hint or _listed(self.grammar.operations)}")
            return None
        before = len(self.problems)
        target = self._target(line, match["target"], name, signature)
        values = self._arguments(line, name, arguments, signature)
        claim = self._claim(line, name, match["reply"], signature)
        if len(self.problems) > before:
            return None
        return Operation(
            name=name, arguments=values, target=target, line=line, claim=claim, comment=match["comment"] or ""
        )

    def _target(self, line: int, written: str | None, name: str, signature: Signature) -> int | None:
        if written == "NULL" and signature.null_target:
            return None
        if written is None:
            return 1
        if written.isdecimal() and 1 <= int(written) <= self.grammar.most_targets:
            return int(written)
        allowed = f"@1 to @{self.grammar.most_targets}" + (" or @NULL" if signature.null_target else "")
        self._complain(line, f"'@{written}' cannot stand before {name}; write {allowed}")
        return 1

    def _arguments(self, line: int, name: str, words: list[str], signature: Signature) -> tuple[Argument, ...]:
        values: list[Argument] = []
        if signature.null_first and words[:1] == ["NULL"]:
            values.append(None)
            words = words[1:]
        wanted = " ".join(number.name for number in signature.arguments)
        if len(words) != len(signature.arguments):
            self._complain(line, f"{name} takes {len(signature.arguments)} arguments ({name} {wanted}), not {len(words)}")
            return ()
        for word, number in zip(words, signature.arguments, strict=True):
            if not re.fullmatch(r"[+-]?\d+", word) or not number.least <= int(word) <= number.most:
                self._complain(
                    line, f"{number.name} of {name} must be a number from {number.least} to {number.most}, not '{word}'"
                )
            else:
                values.append(int(word))
        return tuple(values)

    def _claim(self, line: int, name: str, written: str | None, signature: Signature) -> str | None:
        if signature.is_poke:
            if written is not None:
                self._complain(line, f"{name} is a poke and returns nothing; leave '-> {written}' away")
            return None
        if written not in signature.replies:
            said = "has no reply" if written is None else f"cannot return '{written}'"
            self._complain(line, f"{name} {said}; write -> {' or -> '.join(signature.replies)}")
            return None
        return written

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
                    self._complain(operation.line, f"engine @{target} is still alive; destroy it first or use another number")
                if operation.claim not in ("NULL", "-1"):
                    alive.add(target)
            elif target not in alive:
                self._complain(operation.line, f"engine @{target} is not alive here; create it first, or write @NULL")
            if signature.closes:
                alive.discard(target)

    def _check_claims(self, trace: Trace) -> None:
        """Does the reference answer what the author read from the handout? And does anything succeed?"""
        model = self.grammar.model(trace)
        for operation in trace.operations:
            try:
                reply = model.apply(operation)
            except CannotPoke as error:
                self._complain(operation.line, f"'{operation}' does not fit the state here: {error}")
                return
            except CannotGoOn as error:
                self._complain(operation.line, f"the reference cannot go on here: {error}")
                return
            if operation.claim is not None and reply.text != operation.claim:
                self._complain(
                    operation.line,
                    f"'{operation}' claims {operation.claim}, the reference returns {reply.text} ({reply.clause})",
                )
                return
        claims = [operation.claim for operation in trace.operations if not operation.implicit]
        if all(claim in ("NULL", "-1", None) for claim in claims) and all(not o.implicit for o in trace.operations):
            self._complain(self._line_of("operations"), "every call is refused; add calls that must succeed")


def _indexed(index: re.Match[str], name: str, value: int) -> str:
    variable, sign, number = index.groups()
    if variable != name:
        return index.group(0)
    amount = int(number or 0)
    return str({None: value, "+": value + amount, "-": value - amount, "*": value * amount}[sign])


def _suggestion(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _listed(known: Iterable[str]) -> str:
    return f"; known are: {', '.join(known)}"
