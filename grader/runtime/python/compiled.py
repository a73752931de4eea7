"""The texts of a lab's table, and its given modules, as code for the harness: compiled once, not at each of its starts.

Each text becomes the code of a function, because a call of a function passes no audit hook, and texts are executed
several times for each operation. The interpreters of grader and harness have the same bytecode, so code goes from one
to the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from types import CodeType

from grader.runtime.python.table import CallTable

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
