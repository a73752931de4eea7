"""A case of a C lab as one standalone program: the calls, the driver of the lab, and the expected state at the end.

The last operation is the case's first bad one. All operations before were right, so the program checks only their
replies. The program detects memory errors with its own malloc. A checked pattern around allocations would be shorter,
but detects only writes, and only after the call.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grader.core.case import Case, Signature
from grader.runtime.native import values
from grader.runtime.native.project import CProject
from reference.operation import NULL, Trace

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATE = Path(__file__).with_name("repro.c.jinja")
_INTERFACE = Path(values.__file__).parent / "harness" / "harness.h"
_WIDTH, _INDENT = 100, 4
_INCLUDED = re.compile(r'#include ["<].*[">]\n')
_COMMENT = re.compile(r"^ */\*.*?\*/\n", re.DOTALL | re.MULTILINE)
_LENT = re.compile(r'put_lent\("(\w+)"')


class _Value(NamedTuple):
    """The expected value at a path: a text, or the list number `ints` with `size` ints."""

    path: str
    text: str | None
    ints: int = 0
    size: int = 0


class _Line(NamedTuple):
    """A call in the form that the template needs."""

    code: int
    target: int
    first: int
    given: int
    text: str
    sentence: int
    reply: str


def reproduce(
    case: Case,
    operation: int,
    *,
    project: CProject,
    calls: Mapping[str, Signature],
    settings: Callable[[Trace], tuple[int, ...]],
    sentences: Callable[[], Mapping[str, str]],
) -> str:
    """Return a program of the case up to and including operation `operation`, counted from 0.

    `calls` are in the order of the driver's codes, `settings` returns the numbers for lab_start, `sentences` reads the
    handout's sentences.
    """
    text, clauses = project.driver.read_text(encoding="utf-8"), sentences()
    operations, last = case.trace.operations, case.trace.operations[operation]
    parts = _Parts(case, list(calls), clauses, frozenset(_LENT.findall(text)))
    closing = list(_closing(case, operation, calls))
    states = [values.decode(record)["state"] for record in case.expected.records[: operation + 1]]
    lines = list(parts.lines([*range(operation + 1), *closing]))
    expected = sorted(parts.flat(("state",), states[-1], states), key=lambda value: value.path.encode())
    template = _environment().get_template(_TEMPLATE.name)
    return template.render(
        title=case.title,
        name=case.name,
        clauses=[_cited(clauses, clause) for clause in case.handout],
        command=project.command_with("repro.c", "repro"),
        stops_in=last.name if calls[last.name].task else "",
        before_it=sum(each.name == last.name for each in operations[:operation]),
        header=project.header.name,
        interface=_declarations(_INTERFACE.read_text(encoding="utf-8")),
        driver=_INCLUDED.sub("", text),
        starts="void lab_start(" in text,
        settings=[*settings(case.trace), 0],
        lines=lines,
        last=operation + 1,
        expected=expected or [_Value("", "nothing")],  # a C array needs an element
        lists=parts.lists,
        arguments=parts.arguments,
        sentences=parts.sentences,
        refused=case.expected.replies[operation].refused,
        ends=operation == len(operations) - 1 or bool(closing),
    )


def _closing(case: Case, last: int, calls: Mapping[str, Signature]) -> Iterator[int]:
    """Yield the numbers of the operations after `last` that close what operations up to `last` opened."""
    opened: set[int | None] = set()
    for number, (each, reply) in enumerate(zip(case.trace.operations, case.expected.replies, strict=True)):
        if calls[each.name].opens and number <= last and not reply.refused:
            opened.add(each.target)
        elif calls[each.name].closes and each.target in opened:
            opened.remove(each.target)
            if number > last:
                yield number


@dataclass(slots=True)
class _Parts:
    """The parts of the program that depend on the case."""

    case: Case
    codes: list[str]
    clauses: Mapping[str, str]
    lent: frozenset[str]
    lists: list[str] = field(default_factory=list)
    """The lists of ints that other parts refer to, by their number from 1."""
    arguments: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    def lines(self, numbers: Iterable[int]) -> Iterator[_Line]:
        """Yield the operations with these numbers, as calls."""
        for number in numbers:
            operation, reply = self.case.trace.operations[number], self.case.expected.replies[number]
            line = f" (line {operation.line} of the case)" if operation.line else ""
            sentence = _cited(self.clauses, reply.clause) if reply.clause else ""
            if sentence not in self.sentences:
                self.sentences.append(sentence)
            yield _Line(
                code=self.codes.index(operation.name),
                target=operation.target or 0,
                first=len(self.arguments),
                given=len(operation.arguments),
                text=(f"{operation} -> {reply.text}" if reply.text else f"{operation} (by hand)") + line,
                sentence=self.sentences.index(sentence),
                reply=_text(values.decode(self.case.expected.records[number])["reply"]["returned"]),
            )
            self.arguments += map(self._argument, operation.arguments)

    def flat(self, path: tuple[str, ...], value: Any, history: list[Any]) -> Iterator[_Value]:
        """Yield the values at and below `path`; of lent memory only changes. `history`: that value in all states."""
        if isinstance(value, dict):
            for name, item in value.items():
                inside = [state[name] for state in history if isinstance(state, dict) and name in state]
                yield from self.flat((*path, name), item, inside)
        elif isinstance(value, list) and all(isinstance(item, int) for item in value):
            ints = value
            if path[-1] in self.lent:
                fresh = next(before for before in history if len(before) == len(value))
                changes = [place for place, word in enumerate(value) if word != fresh[place]]
                ints = [number for place in changes for number in (place, value[place])]
            yield _Value(_dotted(path), None, self._listed(ints), len(ints))
        elif isinstance(value, list):
            for place, item in enumerate(value):
                yield from self.flat((*path[:-1], f"{path[-1]}[{place}]"), item, [])
        elif value is not None or not path[-1].endswith("]"):  # most items of lists are null, so they are omitted
            yield _Value(_dotted(path), _text(value))

    def _argument(self, argument: Any) -> str:
        if isinstance(argument, int):
            return f"{{1, {argument}, NULL}}"
        if argument is None or argument == NULL:
            return "{0, 0, NULL}"
        if isinstance(argument, str):
            return f"{{2, {len(argument.encode())}, {c_string(argument)}}}"
        return f"{{2, {len(argument)}, repro_list_{self._listed(argument)}}}"

    def _listed(self, ints: Iterable[int]) -> int:
        """Return the number of a list with these ints. Equal lists share a number."""
        text = ", ".join(map(str, ints)) or "0"
        if text not in self.lists:
            self.lists.append(text)
        return self.lists.index(text) + 1


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path[1:])


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _declarations(header: str) -> str:
    """Return the harness's interface without comments, and without what the program declares itself."""
    text = _COMMENT.sub("", header)
    text = re.sub(r"struct call \{.*?\};\n", "", text, flags=re.DOTALL)
    return re.sub(r"\n\n+", "\n", re.sub(r"#(?:ifndef|define) HARNESS_H\n|#include <.*>\n|#endif\n", "", text)).strip()


def _cited(clauses: Mapping[str, str], clause: str) -> str:
    """Return a sentence of the handout, with its place."""
    return f"{clause.partition('/')[0]}: {clauses[clause]}"


def c_comment(text: str) -> str:
    """Return the text on one line, safe in a C comment."""
    apart = re.sub(r"(?<=[*/?])(?=[*/?])", " ", " ".join(text.split()))
    return apart.replace("\\", "/") if apart.endswith("\\") else apart


def c_string(text: str, *, column: int = 0) -> str:
    """Return the text as a C string. A long text becomes several strings, each on a line that begins at `column`."""
    width = _WIDTH - _INDENT - column - len('" ");')
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
    parts = textwrap.wrap(escaped, width, break_long_words=False, break_on_hyphens=False)
    return '"' + (' "\n' + " " * column + '"').join(parts) + '"'


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - slow to import

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - source text, no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"comment": c_comment, "string": c_string}
    return environment
