"""The operations of a case file: one call or poke a line, with the reply its author claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from grader.grammar import Grammar, Signature
from grader.table import suggestion
from reference.operation import Argument, Operation

__all__ = ["OperationReader"]

_LINE = re.compile(
    r"(?:@(?P<target>\w+)\s+)?(?P<call>[^#>]*?)(?:\s*->\s*(?P<reply>[^#]*?))?\s*(?:#\s*(?P<comment>.*))?"
)
_REPEAT = re.compile(r"repeat\s+(?P<name>[a-z])\s+(?P<first>-?[0-9]{1,9})\.\.(?P<last>-?[0-9]{1,9})\s*:\s*(?P<rest>.+)")
_INDEX = re.compile(r"\{\s*([a-z])\s*(?:([+*-])\s*([0-9]{1,9})\s*)?\}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_MOST_OPERATIONS = 20_000
_MOST_SHOWN = 40


class OperationReader:
    """Reads operations and complains, with the line, about what is no operation."""

    def __init__(self, grammar: Grammar, complain: Callable[[int, str], None]) -> None:
        self.grammar = grammar
        self.complaints = 0
        self._report = complain

    def read(self, text: str, first_line: int) -> Iterator[Operation]:
        """The operations of `text`, whose first line is number `first_line` of its file."""
        count = 0
        for line, written in enumerate(text.splitlines(), start=first_line):
            before = self.complaints
            for one in self._repeated(line, written.strip()):
                operation = self._operation(line, one)
                if self.complaints > before:
                    break  # what `repeat` makes of the line next would say it again
                if operation is not None:
                    count += 1
                    yield operation
                if count > _MOST_OPERATIONS:
                    self._complain(line, f"more than {_MOST_OPERATIONS} operations; a case is a short story")
                    return

    def _complain(self, line: int, message: str) -> None:
        self.complaints += 1
        self._report(line, message)

    def _repeated(self, line: int, written: str) -> Iterator[str]:
        if not written.startswith("repeat "):
            yield written
            return
        match = _REPEAT.fullmatch(written)
        if match is None:
            self._complain(line, f"write: repeat i 2..301: {self.grammar.example}, with {{i}} where the number goes")
            return
        for value in range(int(match["first"]), min(int(match["last"]), int(match["first"]) + _MOST_OPERATIONS) + 1):
            yield _INDEX.sub(lambda index, value=value: _indexed(index, match["name"], value), match["rest"])

    def _operation(self, line: int, written: str) -> Operation | None:
        match = _LINE.fullmatch(written)
        words = match["call"].split() if match else []
        if match is None or not words:
            if written and not written.startswith("#"):
                self._complain(line, f"cannot read '{written}'; write: {self.grammar.example}  # comment")
            return None
        name, *arguments = words
        signature = self.grammar.operations.get(name)
        if signature is None:
            hint = suggestion(name, self.grammar.operations)
            self._complain(line, f"unknown operation '{name}'{hint or _listed(self.grammar.operations)}")
            return None
        before = self.complaints
        target = self._target(line, match["target"], name, signature)
        values = self._arguments(line, name, arguments, signature)
        claim = self._claim(line, name, match["reply"], signature)
        if self.complaints > before:
            return None
        return Operation(
            name=name, arguments=values, target=target, line=line, claim=claim, comment=match["comment"] or ""
        )

    def _target(self, line: int, written: str | None, name: str, signature: Signature) -> int | None:
        if written == "NULL" and signature.null_target:
            return None
        if written is None:
            return 1
        if _NUMBER.fullmatch(written) and 1 <= int(written) <= self.grammar.most_targets:
            return int(written)
        allowed = f"@1 to @{self.grammar.most_targets}" + (" or @NULL" if signature.null_target else "")
        self._complain(line, f"'@{written}' cannot stand before {name}; write {allowed}")
        return 1

    def _arguments(self, line: int, name: str, words: list[str], signature: Signature) -> tuple[Argument, ...]:
        values: list[Argument] = []
        if signature.null_first and words[:1] == ["NULL"]:
            values.append(None)
            words = words[1:]
        wanted = " ".join([name, *(number.name for number in signature.arguments)])
        if len(words) != len(signature.arguments):
            self._complain(line, f"{name} takes {len(signature.arguments)} arguments ({wanted}), not {len(words)}")
            return ()
        for word, number in zip(words, signature.arguments, strict=True):
            if _NUMBER.fullmatch(word) and int(word) in number:
                values.append(int(word))
            else:
                shown = word if len(word) <= _MOST_SHOWN else f"{word[:_MOST_SHOWN]}..."
                self._complain(line, f"{number.name} of {name} must be a number {number.values}, not '{shown}'")
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


def _indexed(index: re.Match[str], name: str, value: int) -> str:
    variable, sign, number = index.groups()
    if variable != name:
        return index.group(0)
    amount = int(number or 0)
    return str({None: value, "+": value + amount, "-": value - amount, "*": value * amount}[sign])


def _listed(known: Iterable[str]) -> str:
    return f"; known are: {', '.join(known)}"
