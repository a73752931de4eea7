"""The lab's table, compiled: the statements that make its calls, the meaning of arguments and replies, what is read.

The texts compiled here are those that a student reads in a reproduction. Each becomes the code of a function, because
a call of a function passes no audit hook, and texts are executed several times for each operation.
"""

import ast
import re

_PLACE = re.compile(r"\[?(?P<among>.+)\[\{\}\]\]?")
_FUNCTION = type(lambda: None)


class Table:
    """All texts of a lab's table, compiled once for all cases."""

    def __init__(self, described):
        self.setup = compile(described["setup"], "<setup>", "exec")
        self.defines = compile(described["defines"], "<defines>", "exec")
        self.parameters = described["parameters"]
        self.calls = {name: _statements(name, text) for name, text in described["calls"].items()}
        self.takes = {name: _taking(text) for name, text in described["takes"].items()}
        self.among = {name: _among(text) for name, text in described["takes"].items()}
        self.gives = described["gives"]
        self.reads = {name: _value(name, text) for name, text in described["reads"].items()}
        self.errors = frozenset(described["errors"])
        texts = [described["defines"], *described["calls"].values(), *described["reads"].values()]
        self.reads_calls = any("calls_of(" in text for text in texts)


def bound(codes, space):
    """Return the functions of these codes, with their names in `space`."""
    return {name: code and _FUNCTION(code, space) for name, code in codes.items()}


def _statements(name, text):
    """Compile statements; names that they assign are global, and the value of a last expression is returned."""
    body = ast.parse(text).body
    if body and isinstance(body[-1], ast.Expr):
        body[-1] = ast.Return(body[-1].value)
    assigned = {node.id for node in ast.walk(ast.Module(body, [])) if _is_assigned(node)}
    outside = [ast.Global(sorted(assigned))] if assigned else []
    function = ast.parse("def call(): pass").body[0]
    function.body = [*outside, *body]
    return _code(ast.Module([function], []), name)


def _is_assigned(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _value(name, text, parameters=""):
    """Compile an expression."""
    return _code(ast.parse(f"lambda {parameters}: ({text})"), name)


def _code(tree, name):
    """Return the code of the function that a module consists of."""
    module = compile(ast.fix_missing_locations(tree), f"<{name}>", "exec")
    return next(value for value in module.co_consts if hasattr(value, "co_code"))


def _taking(text):
    """Compile what an argument stands for: "[block[{}]]" takes a list, "block[{}]" a single value."""
    if text.startswith("[") and text.endswith("]"):
        text = f"[{text[1:-1].format('_item')} for _item in _given]"
    return _value("argument", text.format("_given"), "_given")


def _among(text):
    """Compile the list or dict in which an argument's objects are; None where the text has no such form."""
    match = _PLACE.fullmatch(text)
    return _value("objects", match["among"]) if match else None
