"""What a lab gives to the runtime: the Python texts that construct, call and read a student's objects.

The harness executes these texts, and a student reads the same texts in a reproduction. Where programs report something
else than states, such as a log, the lab also gives a function that makes states of it, in the grader's process.

The harness gets the texts as code, compiled once and not at each of its starts. Each text becomes the code of a
function, because a call of a function passes no audit hook, and texts are executed several times for each operation.
The interpreters of grader and harness have the same bytecode, so code goes from one to the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import CodeType
from typing import Any

from grader.core.case import EVERY
from reference.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTable:
    """How the operations of case files become Python."""

    setup: str
    """The imports of what the submission must define: "from block_pool import BlockPool"."""
    calls: Mapping[str, str]
    """For each operation the statements that do it. The last one, if it is an expression, is the reply; parameters
    have the names of the operation's arguments."""
    parameters: Mapping[str, tuple[str, ...]]
    takes: Mapping[str, str] = field(default_factory=dict)
    """What an argument of this name stands for, with {} for its value: "[block[{}]]" takes a list, "block[{}]" one."""
    gives: Mapping[str, str] = field(default_factory=dict)
    """How the reply of this operation is read: by identity, as places in what the argument of that name is taken from;
    or by a function of `defines`. Others must be plain values."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """For each part of the state the expression that reads it. `place_of(object, among)` and
    `places_of(objects, among)` name objects by identity; `calls_of(MODULE)` returns the calls on a given module since
    it was read last."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The name in the state that each facet is in; one that is not in `reads` was derived (see `Derive`)."""
    defines: str = ""
    """Functions that calls and reads use, executed after `setup`."""
    every: int = EVERY
    """Of random traces the state is read after so many operations."""
    errors: tuple[str, ...] = ()
    """The names of the built-in error classes by which calls refuse. A subclass counts as the class above it."""

    @property
    def module(self) -> str:
        """The module that students submit."""
        return self._imports[0].module or ""

    @property
    def demanded(self) -> tuple[str, ...]:
        """The names that it must define."""
        return tuple(alias.name for node in self._imports for alias in node.names)

    @property
    def defined(self) -> frozenset[str]:
        """The functions that `defines` defines."""
        return frozenset(node.name for node in ast.parse(self.defines).body if isinstance(node, ast.FunctionDef))

    @property
    def _imports(self) -> list[ast.ImportFrom]:
        return [node for node in ast.parse(self.setup).body if isinstance(node, ast.ImportFrom)]

    def calling(self, names: Collection[str]) -> frozenset[str]:
        """Return the operations whose statements call something of these names."""
        return frozenset(
            operation
            for operation, text in self.calls.items()
            if any(called in names for called in re.findall(r"(\w+)\(", text))
        )


@dataclass(frozen=True, slots=True)
class DerivedStep:
    """An operation: the record that is judged, and the submission's lines behind the parts of its state."""

    record: dict[str, Any]
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the name that a part has in the state."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What pictures show besides; nothing of it is judged."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A case, as far as it can be judged."""

    steps: Sequence[DerivedStep]
    stopped: str = ""
    """Why the operation behind the last step cannot be judged; "" where all can."""
    lines: tuple[int, ...] = ()
    """The submission's lines that this is about."""


Derive = Callable[[Sequence[Operation], Sequence[Mapping[str, Any]]], Derived]
"""Makes the records that are judged of the operations of a case and the records that a program sent. These may be
anything: whatever is wrong with them is a step's or `Derived.stopped`, never an exception."""


_PLACE = re.compile(r"\[?(?P<among>.+)\[\{\}\]\]?")


@lru_cache(maxsize=16)
def module_code(text: str, file: str) -> CodeType:
    """Return the code of a given module, or of statements of a table."""
    return compile(text, file, "exec", dont_inherit=True)


def compiled(table: CallTable) -> dict[str, object]:
    """Return a table as the harness takes it."""
    texts = [table.defines, *table.calls.values(), *table.reads.values()]
    return {
        "setup": module_code(table.setup, "<setup>"),
        "defines": module_code(table.defines, "<defines>"),
        "parameters": {name: list(parameters) for name, parameters in table.parameters.items()},
        "calls": _codes(_statements, table.calls),
        "takes": _codes(_taking, table.takes),
        "among": _codes(_among, table.takes),
        "gives": dict(table.gives),
        "reads": _codes(_value, table.reads),
        "errors": list(table.errors),
        "reads_calls": any("calls_of(" in text for text in texts),
    }


def _codes(function: Callable[[str, str], CodeType | None], texts: Mapping[str, str]) -> dict[str, CodeType | None]:
    return {name: function(name, text) for name, text in texts.items()}


@cache
def _statements(name: str, text: str) -> CodeType:
    """Compile statements; names that they assign are global, and the value of a last expression is returned."""
    body = ast.parse(text).body
    if body and isinstance(body[-1], ast.Expr):
        body[-1] = ast.Return(body[-1].value)
    nodes = ast.walk(ast.Module(body, []))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    outside = [ast.Global(sorted(assigned))] if assigned else []
    (function,) = ast.parse("def call(): pass").body
    assert isinstance(function, ast.FunctionDef)
    function.body = [*outside, *body]
    return _code(ast.Module([function], []), name)


@cache
def _value(name: str, text: str, parameters: str = "") -> CodeType:
    """Compile an expression."""
    return _code(ast.parse(f"lambda {parameters}: ({text})"), name)


def _code(tree: ast.Module, name: str) -> CodeType:
    """Return the code of the function that a module consists of."""
    module = compile(ast.fix_missing_locations(tree), f"<{name}>", "exec")
    return next(value for value in module.co_consts if isinstance(value, CodeType))


def _taking(_: str, text: str) -> CodeType:
    """Compile what an argument stands for: "[block[{}]]" takes a list, "block[{}]" a single value."""
    if text.startswith("[") and text.endswith("]"):
        text = f"[{text[1:-1].format('_item')} for _item in _given]"
    return _value("argument", text.format("_given"), "_given")


def _among(_: str, text: str) -> CodeType | None:
    """Compile the list or dict in which an argument's objects are; None where the text has no such form."""
    match = _PLACE.fullmatch(text)
    return _value("objects", match["among"]) if match else None
