"""The lab's table, compiled: the statements that make its calls, the meaning of arguments and replies, what is read.

The texts executed here are those that a student reads in a reproduction.
"""

import ast
import re

_PLACE = re.compile(r"\[?(?P<among>.+)\[\{\}\]\]?")


class Call:
    """A call: its parameters, its statements, and the expression that is its reply."""

    def __init__(self, name, text, parameters):
        self.name = name
        self.parameters = parameters
        body = ast.parse(text).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        self.statements = compile(ast.Module(body, []), f"<{name}>", "exec") if body else None
        self.value = compile(ast.Expression(last.value), f"<{name}>", "eval") if last is not None else None


class Table:
    """All texts of a lab's table, compiled once for all cases."""

    def __init__(self, described):
        self.setup = compile(described["setup"], "<setup>", "exec")
        self.defines = compile(described["defines"], "<defines>", "exec")
        parameters = described["parameters"]
        self.calls = {name: Call(name, text, parameters[name]) for name, text in described["calls"].items()}
        self.takes = {name: _taking(text) for name, text in described["takes"].items()}
        self.among = {name: _among(text) for name, text in described["takes"].items()}
        self.gives = described["gives"]
        self.reads = [(name, compile(text, f"<{name}>", "eval")) for name, text in described["reads"].items()]
        self.errors = frozenset(described["errors"])


def _taking(text):
    """Compile what an argument stands for: "[block[{}]]" takes a list, "block[{}]" a single value."""
    if text.startswith("[") and text.endswith("]"):
        return compile(f"[{text[1:-1].format('_item')} for _item in _given]", "<argument>", "eval")
    return compile(text.format("_given"), "<argument>", "eval")


def _among(text):
    """Compile the list or dict in which an argument's objects are; None where the text has no such form."""
    match = _PLACE.fullmatch(text)
    return compile(match["among"], "<objects>", "eval") if match else None
