"""Case files: load them, select the cases to run, and write a case as a file.

A case is a trace of operations with the replies that its author claims. A person reads the replies from the handout. A
claim that the reference engine contradicts makes the case invalid before any student is involved. All mistakes of a
file are reported at once, as `path:line: message`.

Either all cases of an assignment are run, or only the public ones. The weight of hidden cases counts even if they are
not run, because a score without this weight would look like the final one. So the earned points are certain, whatever
the hidden cases would show. The bundle for students contains no hidden case; there a file next to the rubric gives the
weights of the hidden cases, and nothing else about them.

Loaded cases, with what the reference does in them, are stored between runs (grader.assignment.stored), because reading
and playing the cases of a lab takes up to 7 s. They depend on the case files and the files next to them, the seed, the
reference, and the code that loads cases.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from grader.assignment.input_file import TomlTable, filled, short
from grader.assignment.lab import Lab
from grader.assignment.stored import stored
from grader.core.case import Case, Expected, Generated, Grammar, Number, Signature, pack
from grader.core.errors import CaseFileError, FileProblem, InputError, RubricError, UsageError
from grader.core.model import Step, play
from grader.core.rubric import Rubric
from grader.core.verdict import Judged, Visibility
from reference.operation import NULL, Argument, Operation, Trace
from reference.oracle import CannotGoOn, CannotPoke

_GENERATED = frozenset({"seeds", "length"})
"""The keys of a case of random traces, which has no operations."""
_SEEDS = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_MOST_SEEDS = 5_000
_LENGTH = Number("length", 1, 500)

_REPEAT = re.compile(r"repeat\s+(?P<name>[a-z])\s+(?P<first>-?[0-9]{1,9})\.\.(?P<last>-?[0-9]{1,9})\s*:\s*(?P<rest>.+)")
_MOST_OPERATIONS = 5_000
_MOST_COLUMNS = 500


def load_folder(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Load the cases below `folder` whose names match `pattern`, sorted by name. Raises `CaseFileError`."""
    return load_all(paths(folder, pattern), grammar, seed=seed)


def load_all(files: Iterable[Path], grammar: Grammar, *, seed: int) -> list[Case]:
    """Load these case files. Raises `CaseFileError` with the mistakes of all files."""
    cases: list[Case] = []
    problems: list[FileProblem] = []
    for path in files:
        try:
            cases.append(load(path, grammar, seed=seed))
        except CaseFileError as error:
            problems += error.problems
    if problems:
        raise CaseFileError(problems)
    return cases


def paths(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the case files below `folder` that match a pattern of case names, or of folder and name; sorted."""
    inner, slash, name = pattern.rpartition("/")
    return [
        path
        for path in sorted(folder.glob("*/*.toml"))
        if fnmatchcase(path.stem, name) and (not slash or fnmatchcase(path.parent.name, inner))
    ]


def name_of(path: Path) -> str:
    """Return the name of the case in a file."""
    return f"{path.parent.name}/{path.stem}"


def load(path: Path, grammar: Grammar, *, seed: int) -> Case:
    """Load one case file. Raises `CaseFileError` with all its mistakes."""
    return _CaseReader(TomlTable.read(path, CaseFileError, grammar.constants), grammar).case(seed)


class _CaseReader:
    """Reads one case file and collects its mistakes."""

    def __init__(self, table: TomlTable, grammar: Grammar) -> None:
        self.table = table
        self.grammar = grammar
        self.problems = table.problems
        self.wrong_lines: set[int] = set()

    def case(self, seed: int) -> Case:
        """Return the case. Raises `CaseFileError` with all mistakes of the file."""
        case = self._header()
        settings = self._settings()
        if self.table.values.keys() & _GENERATED:
            case = replace(case, trace=Trace(operations=(), settings={**settings, "seed": seed}))
            case = replace(case, generated=self._generated(case.trace))
        else:
            operations = list(self._operations())
            if not self.problems:
                for key, message in self.grammar.complete(settings, operations):
                    self.table.complain(key, message)
            trace = Trace(operations=tuple(operations), settings={**settings, "seed": seed})
            if not self.problems:  # a later check would only repeat what an earlier one found
                self._check_targets(trace)
            case = replace(case, trace=trace, expected=Expected.of(self._played(trace) if not self.problems else ()))
            if not self.problems:
                self._check_success(trace)
        self.table.check()
        return case

    def _generated(self, empty: Trace) -> Generated:
        """Return the random traces of a case, with the settings of `empty`, and what the reference does in each."""
        table = self.table
        generator = self.grammar.generate() if self.grammar.generate is not None else None
        if "operations" in table.values:
            table.complain("operations", "write either operations, or seeds and length of random traces")
        elif generator is None:
            table.complain("seeds", "this lab has no random traces; write operations")
        length = table.number("length", _LENGTH, needed=True) or 0
        seeds = self._seeds()
        traces: list[tuple[Operation, ...]] = []
        line = table.line_of("seeds")
        digests = []
        for number in seeds if not self.problems else ():
            assert generator is not None
            traces.append(tuple(replace(operation, line=line) for operation in generator(number, length)))
            trace = replace(empty, operations=traces[-1])
            try:
                records = (step.record for step in play(self.grammar.model(trace), trace))
                digests.append(Generated.digest(records, self.grammar.every))
            except (CannotPoke, CannotGoOn) as error:
                table.complain("seeds", f"the reference cannot play the trace of seed {number}: {error}")
                break
        packed = tuple(map(pack, traces))
        return Generated(seeds=seeds, length=length, traces=tuple(traces), digests=tuple(digests), packed=packed)

    def _seeds(self) -> range:
        """Return the seeds of random traces that the file demands; both ends of its range are included."""
        text = self.table.values.get("seeds")
        match = _SEEDS.fullmatch(text) if isinstance(text, str) else None
        first, last = (int(match[1]), int(match[2])) if match is not None else (1, 0)
        if not first <= last < first + _MOST_SEEDS:
            wanted = f'seeds = "1..1000", at most {_MOST_SEEDS} of them, from the first to the last'
            self.table.complain("seeds", f"seeds {'is missing' if text is None else 'cannot be read'}: write {wanted}")
            return range(0)
        return range(first, last + 1)

    def _complain_of(self, operation: Operation, message: str) -> None:
        """Report one mistake for each line: operations that `repeat` makes of one line mostly have the same mistake."""
        if operation.line not in self.wrong_lines:
            self.wrong_lines.add(operation.line)
            self.table.complain_at(operation.line, message)

    def _header(self) -> Case:
        """Return the case without operations and not checked yet."""
        table = self.table
        kind = _GENERATED if table.values.keys() & _GENERATED else ()
        names = ["title", "handout", "rule", "visibility", "weight", "operations"]
        table.check_keys([*names, *kind, *self.grammar.settings])
        if kind and "rule" in table.values:
            table.complain("rule", "random traces have no rule: what goes wrong in them has one; leave it out")
        return Case(
            name=name_of(self.table.path),
            path=self.table.path,
            title=table.sentence("title", '"...", one sentence in plain words'),
            rule="" if kind else table.choice("rule", self.grammar.rules),
            visibility=Visibility(table.choice("visibility", list(Visibility)) or "public"),
            handout=self._clauses(),
            weight=table.number("weight", Number("weight", 1, 100)) or 1,
            trace=Trace(operations=()),
            expected=Expected.of(()),
        )

    def _settings(self) -> dict[str, int]:
        values = {key: self.table.number(key, number) for key, number in self.grammar.settings.items()}
        return {key: value for key, value in values.items() if value is not None}

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
        first_line = self.table.line_of("operations") + (1 if below else 0)
        count = 0
        for line, written in enumerate(text.split("\n"), start=first_line):
            before = len(self.table.problems)
            for repeated, repetition in enumerate(self._repeated(line, written.strip())):
                operation = self._operation(line, repetition)
                if len(self.table.problems) > before:
                    break  # the next repetition of the line would have the same mistake
                if operation is not None:
                    yield operation
                if operation is not None or repeated:  # a repeated comment is not an operation, but takes time too
                    count += 1
                if count > _MOST_OPERATIONS:
                    self.table.complain_at(
                        line, f"more than {_MOST_OPERATIONS} operations; split the case into several"
                    )
                    return

    def _repeated(self, line: int, written: str) -> Iterator[str]:
        if len(written) > _MOST_COLUMNS:
            self.table.complain_at(
                line, f"the line has more than {_MOST_COLUMNS} characters; write one operation a line"
            )
            return
        constants = self.grammar.constants
        try:
            if not written.startswith("repeat "):
                yield filled(written, constants)
                return
            head, colon, rest = written.partition(":")
            match = _REPEAT.fullmatch(filled(head, constants) + colon + rest) if colon else None
            if match is None:
                self.table.complain_at(
                    line, f"write: repeat i 2..301: {self.grammar.example}, with {{i}} where the number goes"
                )
                return
            first, last = int(match["first"]), int(match["last"])
            if last < first:
                self.table.complain_at(
                    line, f"repeat counts upwards: write repeat {match['name']} {last}..{first}: ..."
                )
            for value in range(first, min(last, first + _MOST_OPERATIONS) + 1):
                yield filled(match["rest"], {**constants, match["name"]: value})
        except ValueError as error:
            self.table.complain_at(line, str(error))

    def _operation(self, line: int, written: str) -> Operation | None:
        statement, _, comment = written.partition("#")
        call, arrow, reply = statement.partition("->")
        words = call.split()
        if not words or ">" in call:
            if statement:
                self.table.complain_at(line, f"cannot read {short(written)}; write: {self.grammar.example}  # comment")
            return None
        at = words.pop(0)[1:] if words[0].startswith("@") and len(words) > 1 else None
        name, *arguments = words
        signature = self.grammar.operations.get(name)
        if signature is None:
            known = f"; known are: {', '.join(self.grammar.operations)}"
            hint = self.table.hint(name, self.grammar.operations) or known
            self.table.complain_at(line, f"unknown operation {short(name)}{hint}")
            return None
        before = len(self.table.problems)
        target = self._target(line, at, name, signature)
        values = self._arguments(line, name, arguments, signature)
        claim = self._claim(line, name, reply.strip() if arrow else None, signature)
        if len(self.table.problems) > before:
            return None
        return Operation(name=name, arguments=values, target=target, line=line, claim=claim, comment=comment.strip())

    def _target(self, line: int, written: str | None, name: str, signature: Signature) -> int | None:
        if written == NULL and signature.null_target:
            return None
        if written is None:
            return 1
        with contextlib.suppress(ValueError):
            return Number("target", 1, self.grammar.most_targets).read(written)
        allowed = f"@1 to @{self.grammar.most_targets}" + (" or @NULL" if signature.null_target else "")
        self.table.complain_at(line, f"{short(f'@{written}')} cannot precede {name}; write {allowed}")
        return 1

    def _arguments(self, line: int, name: str, words: list[str], signature: Signature) -> tuple[Argument, ...]:
        values: list[Argument] = []
        if signature.null_first and words[:1] == [NULL]:
            values.append(NULL)
            words = words[1:]
        wanted = " ".join([name, *(parameter.name for parameter in signature.arguments)])
        if len(words) != len(signature.arguments):
            self.table.complain_at(
                line, f"{name} takes {len(signature.arguments)} arguments ({wanted}), not {len(words)}"
            )
            return ()
        for word, parameter in zip(words, signature.arguments, strict=True):
            try:
                values.append(parameter.read(word))
            except ValueError:
                self.table.complain_at(
                    line, f"{parameter.name} of {name} must be {parameter.wanted}, not {short(word)}"
                )
        return tuple(values)

    def _claim(self, line: int, name: str, written: str | None, signature: Signature) -> str | None:
        if signature.is_poke:
            if written is not None:
                self.table.complain_at(line, f"{name} is a poke and returns nothing; remove {short(f'-> {written}')}")
            return None
        try:
            return signature.read_reply(written or "")
        except ValueError:
            mistake = "has no reply" if written is None else f"cannot return {short(written)}"
            self.table.complain_at(line, f"{name} {mistake}; write {signature.wanted_replies}")
            return None

    def _check_targets(self, trace: Trace) -> None:
        """Check that each engine is opened before it is used, and not used after it is closed."""
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
                    message = f"engine @{target} is still alive; destroy it first or use another number"
                    self._complain_of(operation, message)
                if operation.claim not in signature.refusals:
                    alive.add(target)
            elif target not in alive:
                self._complain_of(operation, f"engine @{target} is not alive here; create it first, or write @NULL")
            if signature.closes:
                alive.discard(target)

    def _played(self, trace: Trace) -> Iterator[Step]:
        """Play the reference and check the author's claims. A false claim is reported and does not end the play."""
        model = self.grammar.model(trace)
        for operation in trace.operations:
            try:
                reply = model.apply(operation)
            except (CannotPoke, CannotGoOn) as error:
                self._complain_of(operation, f"'{operation}' does not fit the state here: {error}")
                return
            if operation.claim is not None and reply.text != operation.claim:
                message = f"claims {operation.claim}, the reference returns {reply.text} ({reply.clause})"
                self._complain_of(operation, f"'{operation}' {message}")
            yield Step(operation, reply, model.record(), model.allowed(), model.worked())

    def _check_success(self, trace: Trace) -> None:
        """Check that at least one call must succeed: a program that refuses everything must not pass."""
        operations = self.grammar.operations
        if all(operation.claim in (None, *operations[operation.name].refusals) for operation in trace.operations):
            self.table.complain("operations", "every call is refused; add calls that must succeed")


def case_text(case: Case, grammar: Grammar, *, title: str, clause: str, rule: str, comments: Sequence[str] = ()) -> str:
    """Return the case as the text of a case file: a public case with this title, clause of the handout and rule.

    Operations that the grader adds to every such case are left out. `comments` are written at the top.
    """
    lines = [
        (str(operation), "" if grammar.operations[operation.name].is_poke else f" -> {reply.text}")
        for operation, reply in zip(case.trace.operations, case.expected.replies, strict=True)
        if not operation.implicit
    ]
    width = max(len(call) for call, _ in lines)
    values = {"title": title, "handout": clause, "rule": rule, "visibility": "public", **case.trace.settings}
    values.pop("seed", None)  # every case gets it from the rubric or from --seed, not from its file
    widest = max(map(len, values))
    text = (
        *(f"# {comment}" for comment in comments),
        *(f"{name:{widest}} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()),
        "",
        "operations = '''",
        *(f"{call:{width}}{reply}".rstrip() for call, reply in lines),
        "'''",
    )
    return "".join(f"{line}\n" for line in text)


HIDDEN_FILE = "hidden.toml"
"""The file with the weights of the hidden cases. It is next to the rubric if these cases are left out."""

_KEY = "weights"
_WEIGHT = Number("weight", 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSelection:
    """The cases that are run."""

    cases: tuple[Case, ...]
    hidden: Mapping[str, int] | None = None
    """If hidden cases are left out: their weight by rule. None if no hidden case is left out."""


def select_cases(lab: Lab, *, seed: int, pattern: str = "*", public_only: bool = False) -> CaseSelection:
    """Return the cases whose names match `pattern`; no hidden cases if `public_only` or if there is a `HIDDEN_FILE`.

    `pattern` does not change the weight of the hidden cases. Raises `UsageError` if no case matches, `CaseFileError`
    if a case file is wrong, and `RubricError` if `HIDDEN_FILE` is wrong.
    """
    known = hidden_weights(lab)
    cases = load_cases(lab.cases, lab.grammar, seed=seed, pattern=pattern)
    hidden = [case for case in cases if case.visibility is Visibility.HIDDEN]
    if known is not None and hidden:
        message = f'visibility = "hidden", but {HIDDEN_FILE} says that hidden cases are elsewhere'
        raise CaseFileError([FileProblem(case.path, 1, message) for case in hidden])
    if known is None and public_only:
        known = weights(lab.rubric, cases if pattern == "*" else load_cases(lab.cases, lab.grammar, seed=seed))
        cases = [case for case in cases if case.visibility is Visibility.PUBLIC]
    if not cases:
        raise UsageError(f"no case matches '{pattern}'; `grade cases` lists them all")
    return CaseSelection(cases=tuple(cases), hidden=known)


def weights(rubric: Rubric, cases: Iterable[Case]) -> dict[str, int]:
    """Return the weight of the hidden cases among these, for each rule that is not judged by the build."""
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
    """Return the weights in `HIDDEN_FILE`, by rule; None if there is no such file."""
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
    """Return the cases that `load_folder` returns, but take them from the store of loaded cases if they are there.

    Raises `InputError` if the cases together show that something is wrong with the lab itself.
    """

    def files() -> Iterable[Path]:
        return [*grammar.code, *sorted(folder.glob("*.toml")), *paths(folder, pattern)]

    def loaded() -> list[Case]:
        cases = load_folder(folder, grammar, seed=seed, pattern=pattern)
        problems = list(grammar.check(cases)) if pattern == "*" else []
        if problems:
            raise InputError("\n".join(f"{folder}: {problem}" for problem in problems))
        return _shared(cases)

    return stored("cases", (str(folder), seed, pattern), files, loaded)


def _shared(cases: Iterable[Case]) -> list[Case]:
    """Return the cases with one object for all equal replies and spans, so that each is stored and made only once."""
    seen: dict[object, Any] = {}

    def first(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(seen.setdefault(value, value) for value in values)

    return [
        replace(case, expected=replace(right, replies=first(right.replies), allowed=first(right.allowed)))
        for case in cases
        for right in [case.expected]
    ]
