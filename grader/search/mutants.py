"""Mutants of a program: each with one small change of a kind that people make by mistake.

The program is parsed by tree-sitter, so that a change never hits a comment or a string, and only meaningful places are
changed. mutmut, cosmic-ray and Mull do not fit: the first two know Python only and run tests of their own, the last
needs clang's bitcode. The more mutants fail a set of cases, the better the set is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

Node = Any
"""A node of tree-sitter, which need not be installed."""

_OPERATORS = {
    "<": ("<=", ">"),
    "<=": ("<", "=="),
    ">": (">=", "<"),
    ">=": (">", "=="),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "//": ("*",),
    "%": ("/",),
    "&&": ("||",),
    "||": ("&&",),
    "and": ("or",),
    "or": ("and",),
    "+=": ("-=",),
    "-=": ("+=",),
    "++": ("--",),
    "--": ("++",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
"""The replacements of an operator."""

_WITH_OPERATOR = frozenset(
    {
        *("binary_expression", "update_expression", "assignment_expression"),
        *("binary_operator", "boolean_operator", "comparison_operator", "augmented_assignment"),
    }
)
_NUMBERS = frozenset({"number_literal", "integer"})
_STATEMENTS = frozenset({"expression_statement", "break_statement", "continue_statement"})
"""Statements that are removed. `return` stays: without it most programs do not compile, or return something else."""
_CONDITIONS = frozenset({"if_statement", "while_statement", "elif_clause", "conditional_expression"})
_CALLS = frozenset({"call_expression", "call"})
_WORK = frozenset(
    {
        *(*_CALLS, "attribute", "field_expression", "subscript", "subscript_expression", "pointer_expression"),
        *("assignment", "assignment_expression", "augmented_assignment", "update_expression"),
        *("binary_expression", "binary_operator", "comparison_operator"),
    }
)
"""Nodes that show that a function does more than return a constant or an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed program."""

    line: int
    column: int
    change: str
    """What was changed, such as "`<` -> `<=`"."""
    content: bytes


class Edit(NamedTuple):
    """The text that replaces the bytes from `start` to `end` of a program."""

    start: int
    end: int
    text: str

    def of(self, content: bytes) -> bytes:
        """Return the edited program."""
        return content[: self.start] + self.text.encode() + content[self.end :]

    def line(self, content: bytes) -> int:
        """Return the number of the first line of the program that it changes."""
        return content.count(b"\n", 0, self.start) + 1

    def mutant(self, content: bytes) -> Mutant:
        """Return the edited program, with its place and a description of the edit."""
        old, text = content[self.start : self.end].decode(errors="replace"), self.text
        return Mutant(
            line=self.line(content),
            column=self.start - content.rfind(b"\n", 0, self.start),
            change=f"`{_short(old)}` -> `{_short(text)}`" if text.strip(" ;") else f"without `{_short(old)}`",
            content=self.of(content),
        )


def mutants(content: bytes, language: str) -> Iterator[Mutant]:
    """Yield all mutants of a program, in the order of their places; `language` is "c" or "python".

    Raises `ImportError` if tree-sitter is not installed.
    """
    for node in nodes(root_of(content, language)):
        for edit in changes(node, content, language):
            yield edit.mutant(content)


def knock_outs(content: bytes, empty: bytes, language: str) -> Iterator[tuple[str, bytes]]:
    """Yield for each function of a program, by its name, the program with the body that `empty` gives the function.

    `empty` is a program that does nothing. Constructors, and functions that `empty` does not have, are skipped.
    Raises `ImportError` if tree-sitter is not installed.
    """
    nothing = dict(bodies(root_of(empty, language)))
    for name, body in bodies(root_of(content, language)):
        if name in nothing and not name.endswith("__init__"):
            yield name, Edit(body.start_byte, body.end_byte, text_of(nothing[name], empty)).of(content)


def unwritten(content: bytes, starter: bytes, language: str) -> Iterator[str]:
    """Yield the names of the functions of a starter that in a program do nothing but return a value or raise an error.

    Constructors are left out. Raises `ImportError` if tree-sitter is not installed.
    """
    demanded = {name for name, _ in bodies(root_of(starter, language)) if not name.endswith("__init__")}
    for name, body in bodies(root_of(content, language)):
        work = (node for node in nodes(body) if node.type in _WORK)
        if name in demanded and all(node.parent is not None and node.parent.type == "raise_statement" for node in work):
            yield name


def bodies(root: Node) -> Iterator[tuple[str, Node]]:
    """Yield name and body of each function. A method in Python has a name like "Pool.free"."""
    for node in nodes(root):
        body = node.child_by_field_name("body") if node.type == "function_definition" else None
        if body is None:
            continue
        names, around = [_name_of(node)], node.parent
        while around is not None:
            names += [_name_of(around)] if around.type in {"class_definition", "function_definition"} else []
            around = around.parent
        yield ".".join(reversed(names)), body


def _name_of(definition: Node) -> str:
    while (inner := definition.child_by_field_name("declarator")) is not None:
        definition = inner
    name: bytes = (definition.child_by_field_name("name") or definition).text
    return name.decode(errors="replace")


def root_of(content: bytes, language: str) -> Node:
    """Return the root node of a program. Raises `ImportError` if tree-sitter is not installed."""
    library, grammar = import_module("tree_sitter"), import_module(f"tree_sitter_{language}")
    root: Node = library.Parser(library.Language(grammar.language())).parse(content).root_node
    return root


def nodes(root: Node) -> Iterator[Node]:
    """Yield all nodes in the order of the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def changes(node: Node, content: bytes, language: str) -> Iterator[Edit]:
    """Yield each change of this node alone."""
    if node.has_error:
        return
    if node.type in _WITH_OPERATOR:
        for child in node.children:
            for operator in _OPERATORS.get(child.type, ()) if not child.is_named else ():
                yield Edit(child.start_byte, child.end_byte, operator)
    elif node.type in _NUMBERS:
        yield from (Edit(node.start_byte, node.end_byte, text) for text in _other_numbers(text_of(node, content)))
    elif node.type in _STATEMENTS and not _is_text(node):
        yield Edit(node.start_byte, node.end_byte, ";" if language == "c" else "pass")
        if node.type == "break_statement":
            yield Edit(node.start_byte, node.end_byte, text_of(node, content).replace("break", "continue"))
    condition = node.child_by_field_name("condition") if node.type in _CONDITIONS else None
    if condition is not None:
        text = text_of(condition, content)
        negated = f"(!{text})" if language == "c" else f"not ({text})"
        yield Edit(condition.start_byte, condition.end_byte, negated)
    if node.type in _CALLS:
        arguments = node.child_by_field_name("arguments")
        if arguments is not None and arguments.type == "argument_list":
            yield from _swapped_arguments(arguments, content)


def _swapped_arguments(arguments: Node, content: bytes) -> Iterator[Edit]:
    """Yield each pair of neighbours in swapped order."""
    named = [child for child in arguments.children if child.is_named and child.type != "comment"]
    for first, second in pairwise(named):
        before, between = text_of(first, content), content[first.end_byte : second.start_byte].decode(errors="replace")
        after = text_of(second, content)
        if before != after and "=" not in before + after:
            yield Edit(first.start_byte, second.end_byte, f"{after}{between}{before}")


def _other_numbers(text: str) -> Iterator[str]:
    try:
        number = int(text, 0)
    except ValueError:
        return
    yield str(number + 1)
    if number > 0:
        yield str(number - 1)


def _is_text(node: Node) -> bool:
    """Return whether the statement is only a string, such as a docstring."""
    return any(child.type in ("string", "string_literal") for child in node.children)


def text_of(node: Node, content: bytes) -> str:
    """Return the text of a node; characters that are no UTF-8 are replaced."""
    return content[node.start_byte : node.end_byte].decode(errors="replace")


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:59]}…"
