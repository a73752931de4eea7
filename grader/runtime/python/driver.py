"""A lab's driver: the file that makes the calls of an assignment, and reads the state of a submission after each.

Nothing else describes the calls. The harness executes the file next to the submission, which the driver imports as
`submission`. A reproduction contains the functions of the driver that a case needs. The grader reads the file as a
text: what case files may write follows from the signatures.

Its public functions are the operations, except `read(world)`, which returns a function for each part of the state. The
docstring of an operation names the part of the handout; without one, the part is that of the operation above. An
annotation is a type, or a name for `Annotated[TYPE, ...]`. After TYPE come the bounds of a number, or a description of
what must be written and, for a word, its pattern. An object is `Annotated[Any, "ATTRIBUTE"]`: a case file names it by
its key in that attribute of the world or, if bounds follow, by its index, and the function gets the object. If an
operation returns `Annotated[Any, FUNCTION]`, that function of the driver reads the value; its arguments are the
world and the value. Further marks say how an operation refuses: `Annotated[KIND, None, ValueError]`.
"""

from __future__ import annotations
import __future__

import ast
import copy
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from types import CodeType, FunctionType
from typing import Annotated, Any, get_args, get_origin

from grader.core.case import EVERY, NOT_WRITTEN, JsonValue, Number, Signature, Word
from reference.operation import Argument

_ITS = "submission"
_TYPES = {"typing", "collections.abc", "__future__"}
"""Modules that only annotations need: the harness does not have them."""
_MOST = 1 << 62
_REPLY = JsonValue("reply", "JSON without spaces")
_WANTED = {bool: "true or false", list[int]: "a list of numbers such as [1,2]"}
"""For error messages: what a case file must contain for these types, if the driver does not say it."""


class _WordOrJson(JsonValue):
    """A value that is JSON or a bare word."""

    def read(self, word: str) -> Argument:
        """Return the value of a word of a case file. Raises `ValueError` for an unwanted value."""
        return word if word.isidentifier() else super().read(word)


Objects = tuple[str, bool]
"""Objects of a submission that a case file names by index or key: the attribute of `World` that has them, and whether
the argument names several objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonDriver:
    """What the text of a driver says, without executing the driver."""

    text: str
    module: str
    """The module that students submit."""
    demanded: tuple[str, ...]
    """The names that the module must define, because the driver uses them."""
    operations: Mapping[str, Signature]
    takes: Mapping[str, tuple[Objects | None, ...]]
    """For each argument of an operation, the objects that it names; None for a plain value."""
    gives: Mapping[str, str]
    """By operation, the name of the function that reads its return value."""
    reads: tuple[str, ...]
    """The names of the parts of the state that the driver reads."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Modules that submissions may import in addition to the standard library: their texts by name."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """By facet, the name of its part of the state. A part that is not in `reads` is derived (see `play.Derive`)."""
    every: int = EVERY
    """The state of random traces is read after every group of this many operations."""

    @classmethod
    def of(cls, text: str, **others: Any) -> PythonDriver:
        """Read a driver; `others` are the fields that do not follow from its text."""
        operations, takes, gives = dict[str, Signature](), dict[str, tuple[Objects | None, ...]](), dict[str, str]()
        tree, task = tree_of(text), ""
        for name, function in _stubs(text).items():
            _, *arguments, (_, reply) = function.__annotations__.items()
            task = (function.__doc__ or task).rstrip(".")
            marks = _split(reply)[1]
            gives.update((name, mark.__name__) for mark in marks if isinstance(mark, FunctionType))
            takes[name] = tuple(_objects(hint) for _, hint in arguments)
            operations[name] = Signature(
                arguments=tuple(_argument(*each) for each in arguments),
                returns=_REPLY,
                refusals=tuple(_refusal(mark) for mark in marks if not isinstance(mark, FunctionType)),
                task=task,
            )
        imported = (alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names)
        attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        (read,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "read")
        state = next(node for node in ast.walk(read) if isinstance(node, ast.Dict))
        return cls(
            text=text,
            module=next(alias.name for alias in imported if alias.asname == _ITS),
            demanded=tuple(sorted({node.attr for node in attributes if getattr(node.value, "id", "") == _ITS})),
            operations=operations,
            takes=takes,
            gives=gives,
            reads=tuple(ast.literal_eval(key) for key in state.keys if key is not None),
            **others,
        )

    @property
    def file(self) -> str:
        """The file that students submit."""
        return f"{self.module}.py"

    def calling(self, names: Collection[str]) -> frozenset[str]:
        """Return the operations that directly call a function with one of these names."""
        functions = {node.name: node for node in tree_of(self.text).body if isinstance(node, ast.FunctionDef)}
        return frozenset(
            name
            for name in self.operations
            for node in ast.walk(functions[name])
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names
        )

    def excerpt(self, names: Collection[str]) -> str:
        """Return the text of these functions, and of all definitions that they need."""
        defined = {node: _defined(node) for node in tree_of(self.text).body}
        needed, reached = set[str](), set(names)
        while reached - needed:
            needed |= reached
            users = (node for node, here in defined.items() if not needed.isdisjoint(here))
            reached = {each.id for node in users for each in ast.walk(node) if isinstance(each, ast.Name)}
        lines = self.text.splitlines()
        for node, here in defined.items():
            if needed.isdisjoint(here) and node.end_lineno is not None:
                lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
        return re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines)).strip() + "\n"

    def in_harness(self) -> dict[str, object]:
        """Return what the harness needs of the driver."""
        words = {NOT_WRITTEN, *(word for call in self.operations.values() for word in call.refusals)}
        return {
            "code": _code(self.text),
            "takes": {name: places for name, places in self.takes.items() if any(places)},
            "gives": self.gives,
            "reads": self.reads,
            "errors": [word for word in words if word[:1].isupper()],
        }

    def imports(self) -> list[str]:
        """Return the modules that the driver and the given modules import, and the given modules."""
        statements = [*_run(self.text), *(node for text in self.given.values() for node in tree_of(text).body)]
        nodes = [node for statement in statements for node in ast.walk(statement)]
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        return [name for name in dict.fromkeys(names) if name != self.module]


@lru_cache(maxsize=32)
def tree_of(text: str) -> ast.Module:
    """Return the syntax tree of a driver or of a given module."""
    return ast.parse(text)


@lru_cache(maxsize=16)
def module_code(text: str, file: str) -> CodeType:
    """Return the code of a given module. The interpreters of grader and harness have the same bytecode."""
    return compile(text, file, "exec", dont_inherit=True)


@cache
def _code(text: str) -> CodeType:
    """Return the code of a driver, without what only annotations need."""
    flags = __future__.annotations.compiler_flag
    code: CodeType = compile(ast.Module(_run(text), []), "<driver>", "exec", flags, dont_inherit=True, optimize=2)
    return code


def _run(text: str) -> list[ast.stmt]:
    """Return the statements of a driver that the harness executes."""
    types = [node for node in tree_of(text).body if isinstance(node, ast.ImportFrom) and node.module in _TYPES]
    return [node for node in tree_of(text).body if node not in types and not _is_kind(node)]


def _is_kind(node: ast.stmt) -> bool:
    """Return whether a statement gives a name to an annotation, such as Count = Annotated[int, 0, 9]."""
    return isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Annotated[")


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a driver defines."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _stubs(text: str) -> dict[str, FunctionType]:
    """Return the operations of a driver without their bodies, so that only what annotations name must be defined."""
    space: dict[str, Any] = {"Annotated": Annotated, "Any": Any, "World": object}
    body = [copy.copy(node) for node in tree_of(text).body if _is_kind(node) or isinstance(node, ast.FunctionDef)]
    for node in body:
        if isinstance(node, ast.FunctionDef):
            node.body = node.body[:1]
    exec(compile(ast.Module(body, []), "<driver>", "exec", dont_inherit=True), space)  # noqa: S102 - our own annotations
    functions = {name: each for name, each in space.items() if isinstance(each, FunctionType)}
    return {name: each for name, each in functions.items() if not name.startswith("_") and name != "read"}


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of an annotation, and its further marks."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def _objects(hint: Any) -> Objects | None:
    several = get_origin(hint) is list
    kind, marks = _split(get_args(hint)[0] if several else hint)
    return (marks[0], several) if kind is Any and marks else None


def _argument(name: str, hint: Any) -> Number | JsonValue | Word:
    """Return how a case file writes an argument."""
    kind, marks = _split(hint)
    objects = _objects(hint)
    if objects is not None:
        marks = marks[1:]
        kind = list[int] if objects[1] else int if marks else str
    if kind is str:
        return Word(name, *marks)
    if kind is int and not any(isinstance(mark, str) for mark in marks):
        return Number(name, *marks)
    make = _WordOrJson if kind == int | str else JsonValue
    return make(name, marks[0] if marks else _WANTED.get(kind, f"JSON of the type {kind}"), partial(_fits, kind))


def _fits(kind: Any, value: Argument) -> bool:
    """Return whether a value of a case file has a type."""
    kinds = get_args(kind)
    if get_origin(kind) is list:
        return isinstance(value, tuple) and all(_fits(kinds[0], each) for each in value)
    if kind is int:
        return type(value) is int and abs(value) < _MOST
    return kind is Any or type(value) is kind or any(_fits(each, value) for each in kinds)


def _refusal(mark: Any) -> str:
    """Return how a case file writes a reply that refuses: a value, or the name of an error class."""
    return mark.__name__ if isinstance(mark, type) else json.dumps(mark)
