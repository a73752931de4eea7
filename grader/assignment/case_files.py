"""Case files: load them, and write a case as one. A case is a trace of operations with the replies its author claims.

A person reads the replies from the handout. A claim that the reference engine contradicts makes the case invalid
before any student is involved. All mistakes of a file are reported at once, as `path:line: message`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from grader.assignment.input_file import TomlTable, filled, short
from grader.core.case import Case, Expected, Generated, Grammar, Number, Signature, pack
from grader.core.errors import CaseFileError, FileProblem
from grader.core.model import Step, play
from grader.core.verdict import Visibility
from reference.operation import NULL, Argument, Operation, Reply, Trace
from reference.oracle import CannotGoOn, CannotPoke

_GENERATED = frozenset({"seeds", "length"})
"""The keys of a case of random traces, in the place of operations."""
_SEEDS = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_MOST_SEEDS = 5_000
_LENGTH = Number("length", 1, 500)

_REPEAT = re.compile(r"repeat\s+(?P<name>[a-z])\s+(?P<first>-?[0-9]{1,9})\.\.(?P<last>-?[0-9]{1,9})\s*:\s*(?P<rest>.+)")
_MOST_OPERATIONS = 5_000
_MOST_COLUMNS = 500


def load_folder(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Load all cases below `folder` whose name matches `pattern`, in the order of their names.

    Raises `CaseFileError` with the mistakes of all files.
    """
    cases: list[Case] = []
    problems: list[FileProblem] = []
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
    return _CaseReader(TomlTable.read(path, CaseFileError, grammar.constants), grammar).case(seed)


def _fits(path: Path, pattern: str) -> bool:
    """Whether the pattern matches this case's name, or its folder and its name."""
    folder, slash, name = pattern.rpartition("/")
    return fnmatchcase(path.stem, name) and (not slash or fnmatchcase(path.parent.name, folder))


class _CaseReader:
    """Reads one case file and collects its mistakes."""

    def __init__(self, table: TomlTable, grammar: Grammar) -> None:
        self.table = table
        self.path = table.path
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
        """Return the random traces of a case with these settings, with what the reference does in each."""
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
        """The seeds of random traces, both ends included."""
        text = self.table.values.get("seeds")
        match = _SEEDS.fullmatch(text) if isinstance(text, str) else None
        first, last = (int(match[1]), int(match[2])) if match is not None else (1, 0)
        if not first <= last < first + _MOST_SEEDS:
            wanted = f'seeds = "1..1000", at most {_MOST_SEEDS} of them, from the first to the last'
            self.table.complain("seeds", f"seeds {'is missing' if text is None else 'cannot be read'}: write {wanted}")
            return range(0)
        return range(first, last + 1)

    def _complain_of(self, operation: Operation, message: str) -> None:
        """Report one mistake for each line: the operations that `repeat` makes of one line mostly fail alike."""
        if operation.line not in self.wrong_lines:
            self.wrong_lines.add(operation.line)
            self.table.complain_at(operation.line, message)

    def _header(self) -> Case:
        """Return the case without its operations, which is not checked yet."""
        table = self.table
        kind = _GENERATED if table.values.keys() & _GENERATED else ()
        names = ["title", "handout", "rule", "visibility", "weight", "operations"]
        table.check_keys([*names, *kind, *self.grammar.settings])
        if kind and "rule" in table.values:
            table.complain("rule", "random traces have no rule: what goes wrong in them has one; leave it out")
        return Case(
            name=f"{self.path.parent.name}/{self.path.stem}",
            path=self.path,
            title=table.sentence("title", '"...", one sentence in plain words'),
            rule="" if kind else table.choice("rule", self.grammar.rules),
            visibility=Visibility(table.choice("visibility", [member.value for member in Visibility]) or "public"),
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
        first = self.table.line_of("operations") + (1 if below else 0)
        yield from _OperationReader(self.grammar, self.table).read(text, first)

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
            yield Step(operation, reply, model.record(), model.allowed(), model.worked())

    def _check_success(self, trace: Trace) -> None:
        """Check that some call must succeed: a program that refuses everything must not pass."""
        operations = self.grammar.operations
        if all(operation.claim in (None, *operations[operation.name].refusals) for operation in trace.operations):
            self.table.complain("operations", "every call is refused; add calls that must succeed")


class _OperationReader:
    """Reads operations and reports, with its line, what is not an operation."""

    def __init__(self, grammar: Grammar, table: TomlTable) -> None:
        self.grammar = grammar
        self.table = table
        self.complain = table.complain_at

    def read(self, text: str, first_line: int) -> Iterator[Operation]:
        """Yield the operations of `text`, whose first line is line `first_line` of its file."""
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
                    self.complain(line, f"more than {_MOST_OPERATIONS} operations; split the case into several")
                    return

    def _repeated(self, line: int, written: str) -> Iterator[str]:
        if len(written) > _MOST_COLUMNS:
            self.complain(line, f"the line has more than {_MOST_COLUMNS} characters; write one operation a line")
            return
        constants = self.grammar.constants
        try:
            if not written.startswith("repeat "):
                yield filled(written, constants)
                return
            head, colon, rest = written.partition(":")
            match = _REPEAT.fullmatch(filled(head, constants) + colon + rest) if colon else None
            if match is None:
                self.complain(line, f"write: repeat i 2..301: {self.grammar.example}, with {{i}} where the number goes")
                return
            first, last = int(match["first"]), int(match["last"])
            if last < first:
                self.complain(line, f"repeat counts upwards: write repeat {match['name']} {last}..{first}: ...")
            for value in range(first, min(last, first + _MOST_OPERATIONS) + 1):
                yield filled(match["rest"], {**constants, match["name"]: value})
        except ValueError as error:
            self.complain(line, str(error))

    def _operation(self, line: int, written: str) -> Operation | None:
        statement, _, comment = written.partition("#")
        call, arrow, reply = statement.partition("->")
        words = call.split()
        if not words or ">" in call:
            if statement:
                self.complain(line, f"cannot read {short(written)}; write: {self.grammar.example}  # comment")
            return None
        at = words.pop(0)[1:] if words[0].startswith("@") and len(words) > 1 else None
        name, *arguments = words
        signature = self.grammar.operations.get(name)
        if signature is None:
            hint = (
                self.table.hint(name, self.grammar.operations) or f"; known are: {', '.join(self.grammar.operations)}"
            )
            self.complain(line, f"unknown operation {short(name)}{hint}")
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
        self.complain(line, f"{short(f'@{written}')} cannot precede {name}; write {allowed}")
        return 1

    def _arguments(self, line: int, name: str, words: list[str], signature: Signature) -> tuple[Argument, ...]:
        values: list[Argument] = []
        if signature.null_first and words[:1] == [NULL]:
            values.append(NULL)
            words = words[1:]
        wanted = " ".join([name, *(parameter.name for parameter in signature.arguments)])
        if len(words) != len(signature.arguments):
            self.complain(line, f"{name} takes {len(signature.arguments)} arguments ({wanted}), not {len(words)}")
            return ()
        for word, parameter in zip(words, signature.arguments, strict=True):
            try:
                values.append(parameter.read(word))
            except ValueError:
                self.complain(line, f"{parameter.name} of {name} must be {parameter.wanted}, not {short(word)}")
        return tuple(values)

    def _claim(self, line: int, name: str, written: str | None, signature: Signature) -> str | None:
        if signature.is_poke:
            if written is not None:
                self.complain(line, f"{name} is a poke and returns nothing; remove {short(f'-> {written}')}")
            return None
        try:
            return signature.read_reply(written or "")
        except ValueError:
            mistake = "has no reply" if written is None else f"cannot return {short(written)}"
            self.complain(line, f"{name} {mistake}; write {signature.wanted_replies}")
            return None


_SEED = "seed"
"""The setting that every case gets from the rubric or from --seed, not from its file."""


def case_text(case: Case, grammar: Grammar, *, title: str, clause: str, rule: str, comments: Sequence[str] = ()) -> str:
    """Return the text of the case, with this title, clause of the handout and rule; a public case.

    Operations that the grader adds to every such case are left out. `comments` stand at the top.
    """
    pairs = zip(case.trace.operations, case.expected.replies, strict=True)
    lines = [
        (str(operation), _reply(grammar, operation, reply)) for operation, reply in pairs if not operation.implicit
    ]
    width = max(len(call) for call, _ in lines)
    settings = {name: value for name, value in case.trace.settings.items() if name != _SEED}
    values = {"title": title, "handout": clause, "rule": rule, "visibility": "public", **settings}
    widest = max(map(len, values))
    return "".join(
        f"{line}\n"
        for line in (
            *(f"# {comment}" for comment in comments),
            *(f"{name:{widest}} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()),
            "",
            "operations = '''",
            *(f"{call:{width}}{reply}".rstrip() for call, reply in lines),
            "'''",
        )
    )


def _reply(grammar: Grammar, operation: Operation, reply: Reply) -> str:
    return "" if grammar.operations[operation.name].is_poke else f" -> {reply.text}"
