"""Read the operations of a case file: one call or poke on each line, with the reply that its author claims."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

from grader.assignment.toml_table import suggestion
from grader.core.case import Grammar, Number, Signature
from grader.core.errors import MOST_SHOWN
from grader.system.text_file import short
from reference.operation import NULL, Argument, Operation

_REPEAT = re.compile(r"repeat\s+(?P<name>[a-z])\s+(?P<first>-?[0-9]{1,9})\.\.(?P<last>-?[0-9]{1,9})\s*:\s*(?P<rest>.+)")
_INDEX = re.compile(r"\{\s*([a-z])\s*(?:([+*-])\s*([0-9]{1,9})\s*)?\}")
_MOST_OPERATIONS = 5_000
_MOST_COLUMNS = 500


class OperationReader:
    """Reads operations and reports, with its line, what is not an operation."""

    def __init__(self, grammar: Grammar, complain: Callable[[int, str], None]) -> None:
        self.grammar = grammar
        self.complaints = 0
        self._report = complain

    def read(self, text: str, first_line: int) -> Iterator[Operation]:
        """Yield the operations of `text`, whose first line is line `first_line` of its file."""
        count = 0
        for line, written in enumerate(text.split("\n"), start=first_line):
            before = self.complaints
            for repeated, repetition in enumerate(self._repeated(line, written.strip())):
                operation = self._operation(line, repetition)
                if self.complaints > before:
                    break  # the next repetition of the line would have the same mistake
                if operation is not None:
                    yield operation
                if operation is not None or repeated:  # a repeated comment is not an operation, but takes time too
                    count += 1
                if count > _MOST_OPERATIONS:
                    self._complain(line, f"more than {_MOST_OPERATIONS} operations; a case is a short story")
                    return

    def _complain(self, line: int, message: str) -> None:
        self.complaints += 1
        self._report(line, message)

    def _repeated(self, line: int, written: str) -> Iterator[str]:
        if len(written) > _MOST_COLUMNS:
            self._complain(line, f"the line has more than {_MOST_COLUMNS} characters; write one operation a line")
            return
        if not written.startswith("repeat "):
            yield written
            return
        match = _REPEAT.fullmatch(written)
        if match is None:
            self._complain(line, f"write: repeat i 2..301: {self.grammar.example}, with {{i}} where the number goes")
            return
        first, last = int(match["first"]), int(match["last"])
        if last < first:
            self._complain(line, f"repeat counts upwards: write repeat {match['name']} {last}..{first}: ...")
        for value in range(first, min(last, first + _MOST_OPERATIONS) + 1):
            yield _INDEX.sub(lambda index, value=value: _indexed(index, match["name"], value), match["rest"])

    def _operation(self, line: int, written: str) -> Operation | None:
        statement, _, comment = written.partition("#")
        call, arrow, reply = statement.partition("->")
        words = call.split()
        if not words or ">" in call:
            if statement:
                self._complain(line, f"cannot read {short(written)}; write: {self.grammar.example}  # comment")
            return None
        at = words.pop(0)[1:] if words[0].startswith("@") and len(words) > 1 else None
        name, *arguments = words
        signature = self.grammar.operations.get(name)
        if signature is None:
            hint = self._hint(name) or _listed(self.grammar.operations)
            self._complain(line, f"unknown operation {short(name)}{hint}")
            return None
        before = self.complaints
        target = self._target(line, at, name, signature)
        values = self._arguments(line, name, arguments, signature)
        claim = self._claim(line, name, reply.strip() if arrow else None, signature)
        if self.complaints > before:
            return None
        return Operation(name=name, arguments=values, target=target, line=line, claim=claim, comment=comment.strip())

    def _hint(self, name: str) -> str:
        return suggestion(name, self.grammar.operations) if self.complaints < MOST_SHOWN else ""

    def _target(self, line: int, written: str | None, name: str, signature: Signature) -> int | None:
        if written == NULL and signature.null_target:
            return None
        if written is None:
            return 1
        with contextlib.suppress(ValueError):
            return Number("target", 1, self.grammar.most_targets).read(written)
        allowed = f"@1 to @{self.grammar.most_targets}" + (" or @NULL" if signature.null_target else "")
        self._complain(line, f"{short(f'@{written}')} cannot stand before {name}; write {allowed}")
        return 1

    def _arguments(self, line: int, name: str, words: list[str], signature: Signature) -> tuple[Argument, ...]:
        values: list[Argument] = []
        if signature.null_first and words[:1] == [NULL]:
            values.append(NULL)
            words = words[1:]
        wanted = " ".join([name, *(parameter.name for parameter in signature.arguments)])
        if len(words) != len(signature.arguments):
            self._complain(line, f"{name} takes {len(signature.arguments)} arguments ({wanted}), not {len(words)}")
            return ()
        for word, parameter in zip(words, signature.arguments, strict=True):
            try:
                values.append(parameter.read(word))
            except ValueError:
                self._complain(line, f"{parameter.name} of {name} must be {parameter.wanted}, not {short(word)}")
        return tuple(values)

    def _claim(self, line: int, name: str, written: str | None, signature: Signature) -> str | None:
        if signature.is_poke:
            if written is not None:
                self._complain(line, f"{name} is a poke and returns nothing; leave {short(f'-> {written}')} away")
            return None
        try:
            return signature.read_reply(written or "")
        except ValueError:
            mistake = "has no reply" if written is None else f"cannot return {short(written)}"
            self._complain(line, f"{name} {mistake}; write {signature.wanted_replies}")
            return None


def _indexed(index: re.Match[str], name: str, value: int) -> str:
    variable, sign, number = index.groups()
    if variable != name:
        return index.group(0)
    amount = int(number or 0)
    return str({None: value, "+": value + amount, "-": value - amount, "*": value * amount}[sign])


def _listed(known: Iterable[str]) -> str:
    return f"; known are: {', '.join(known)}"
