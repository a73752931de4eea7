"""A case of a Python lab as one pytest file: it fails by itself on the submission, and passes on a right one.

Its statements are the lab's table: what the harness executes is what a student reads here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from grader.core.case import Case
from grader.runtime.python.table import CallTable
from reference.operation import Operation

COMMAND = "python3 -m pytest repro.py"
"""Run beside the submission."""

_SECONDS = 10
_HELPERS = '''

def place_of(item, among):
    """Where this very object is: its place in a list, or its key in a dict."""
    pairs = among.items() if isinstance(among, dict) else enumerate(among)
    return None if item is None else next((place for place, other in pairs if other is item), "a stranger")


def places_of(items, among):
    return [place_of(item, among) for item in items]


def plain(value):
    """Tuples as lists, keys as texts: how the expected values below are written."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
'''


def reproduce(table: CallTable, case: Case, operation: int) -> str:
    """Return the case up to and including that operation (counted from 0) as a pytest file."""
    name = re.sub(r"\W", "_", case.name)
    lines = [
        f'"""{case.title}',
        "",
        f"Case {case.name}. Put this file beside {table.module}.py and type: {COMMAND}",
        '"""',
        "import faulthandler",
        "",
        "import pytest",
        "",
        table.setup,
    ]
    names = sorted({name for text in table.calls.values() for name in _assigned(text)}) if table.defines else []
    body = [
        *([f"    global {', '.join(names)}"] if names else []),  # the functions above use them
        f"    faulthandler.dump_traceback_later({_SECONDS}, exit=True)  # where it is, if a call does not come back",
    ]
    for number, next_operation in enumerate(case.trace.operations[: operation + 1]):
        body += [f"    {line}" for line in _call(table, case, number, next_operation, checked=number == operation)]
    record = json.loads(case.expected.records[operation])
    shown = set(table.parts.values())
    for part, read in table.reads.items():
        if part not in shown or "calls_of(" in read:  # only the grader records calls on given modules
            continue
        body.append(f"    assert plain({read}) == {record['state'][part]!r}")
    body.append("    faulthandler.cancel_dump_traceback_later()")
    defines = f"\n\n{table.defines.strip()}\n" if table.defines else ""
    return "\n".join(lines) + "\n" + _HELPERS + defines + f"\n\ndef test_{name}():\n" + "\n".join(body) + "\n"


def _assigned(text: str) -> Iterator[str]:
    """The names that statements assign."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _call(table: CallTable, case: Case, number: int, operation: Operation, *, checked: bool) -> Iterator[str]:
    """Yield the statements of one operation, with a check of its reply."""
    reply: dict[str, Any] = json.loads(case.expected.records[number])["reply"]
    tree = ast.parse(table.calls[operation.name])
    values = dict(zip(table.parameters[operation.name], operation.arguments, strict=True))
    tree = ast.fix_missing_locations(_Filled(table, values).visit(tree))
    last = tree.body[-1]
    comment = f"  # {operation}"
    if "raised" in reply:
        yield f"with pytest.raises({reply['raised']}):{comment}"
        yield from (f"    {ast.unparse(line)}" for line in tree.body)
        return
    yield from (ast.unparse(line) for line in tree.body[:-1])
    text = ast.unparse(last)
    if checked and isinstance(last, ast.Expr):
        yield f"assert plain({_read(table, operation.name, text)}) == {reply['returned']!r}{comment}"
    else:
        yield f"{text}{comment}"


def _read(table: CallTable, call: str, text: str) -> str:
    """The expression by which a reply is compared: by identity where the table says so."""
    reader = table.gives.get(call)
    if reader is None:
        return text
    taken = table.takes.get(reader)
    if taken is None:
        return f"{reader}({text})"
    several = taken.startswith("[")
    among = taken.strip("[]").partition("[")[0]
    return f"{'places_of' if several else 'place_of'}({text}, {among})"


class _Filled(ast.NodeTransformer):
    """Puts arguments in the place of parameters."""

    def __init__(self, table: CallTable, values: dict[str, Any]) -> None:
        self.table = table
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.values or not isinstance(node.ctx, ast.Load):
            return node
        return ast.parse(_argument(self.table.takes.get(node.id), self.values[node.id]), mode="eval").body


def _argument(taken: str | None, value: object) -> str:
    """An argument as Python: [block[3], block[1]] for [3, 1]."""
    if taken is None:
        return repr(list(value) if isinstance(value, tuple) else value)
    if taken.startswith("[") and isinstance(value, tuple):
        return "[" + ", ".join(taken[1:-1].format(repr(item)) for item in value) + "]"
    return taken.format(repr(value))
