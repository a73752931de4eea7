"""Mutants of a program: each with one small change of a kind that people make by mistake.

The program is parsed by tree-sitter, so that a change never hits a comment or a text, and only meaningful places are
changed. mutmut, cosmic-ray and Mull were looked at: the first two know Python only and run tests of their own, the last
needs clang's byte code. A set of cases is as good as the mutants that it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

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
"""What may come in the place of an operator."""

_WITH_OPERATOR = frozenset(
    {
        *("binary_expression", "update_expression", "assignment_expression"),
        *("binary_operator", "boolean_operator", "comparison_operator", "augmented_assignment"),
    }
)
_NUMBERS = frozenset({"number_literal", "integer"})
_STATEMENTS = frozenset({"expression_statement", "break_statement", "continue_statement"})
"""Statements that may be missing. Without a `return` most programs do not compile, or return something else."""
_CONDITIONS = frozenset({"if_statement", "while_statement", "elif_clause", "conditional_expression"})
_CALLS = frozenset({"call_expression", "call"})
_LISTS = frozenset({"argument_list"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed program."""

    line: int
    column: int
    change: str
    """What was changed, such as "`<` -> `<=`"."""
    content: bytes


def mutants(content: bytes, language: str) -> Iterator[Mutant]:
    """Yield all mutants of a program, in the order of their places; `language` is "c" or "python".

    Raises `ImportError` where tree-sitter is not installed.
    """
    for node in _nodes(_root(content, language)):
        for start, end, text in _changes(node, content, language):
            old = content[start:end].decode(errors="replace")
            line, column = content.count(b"\n", 0, start) + 1, start - content.rfind(b"\n", 0, start)
            yield Mutant(
                line=line,
                column=column,
                change=f"`{_short(old)}` -> `{_short(text)}`" if text.strip(" ;") else f"without `{_short(old)}`",
                content=content[:start] + text.encode() + content[end:],
            )


def knock_outs(content: bytes, empty: bytes, language: str) -> Iterator[tuple[str, bytes]]:
    """Yield for each function of a program, by its name, the program with the body that `empty` gives the function.

    `empty` is a program that does nothing: what it does not have, and constructors, stay. Raises `ImportError` where
    tree-sitter is not installed.
    """
    bodies = dict(_bodies(_root(empty, language)))
    for name, body in _bodies(_root(content, language)):
        if name in bodies and not name.endswith("__init__"):
            text = _text(bodies[name], empty).encode()
            yield name, content[: body.start_byte] + text + content[body.end_byte :]


def _bodies(root: Node) -> Iterator[tuple[str, Node]]:
    """Yield name and body of each function, in Python of the methods too: "Pool.free"."""
    for node in _nodes(root):
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


def _root(content: bytes, language: str) -> Node:
    library, grammar = import_module("tree_sitter"), import_module(f"tree_sitter_{language}")
    root: Node = library.Parser(library.Language(grammar.language())).parse(content).root_node
    return root


def _nodes(root: Node) -> Iterator[Node]:
    """Yield all nodes in the order of the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _changes(node: Node, content: bytes, language: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and new text of each change of this node alone."""
    if node.has_error:
        return
    if node.type in _WITH_OPERATOR:
        for child in node.children:
            for operator in _OPERATORS.get(child.type, ()) if not child.is_named else ():
                yield child.start_byte, child.end_byte, operator
    elif node.type in _NUMBERS:
        yield from ((node.start_byte, node.end_byte, text) for text in _other_numbers(_text(node, content)))
    elif node.type in _STATEMENTS and not _is_text(node):
        yield node.start_byte, node.end_byte, ";" if language == "c" else "pass"
        if node.type == "break_statement":
            yield node.start_byte, node.end_byte, _text(node, content).replace("break", "continue")
    condition = node.child_by_field_name("condition") if node.type in _CONDITIONS else None
    if condition is not None:
        text = _text(condition, content)
        negated = f"(!{text})" if language == "c" else f"not ({text})"
        yield condition.start_byte, condition.end_byte, negated
    if node.type in _CALLS:
        arguments = node.child_by_field_name("arguments")
        if arguments is not None and arguments.type in _LISTS:
            yield from _swapped_arguments(arguments, content)


def _swapped_arguments(arguments: Node, content: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield each two neighbours in the other order."""
    named = [child for child in arguments.children if child.is_named and child.type != "comment"]
    for first, second in pairwise(named):
        before, between = _text(first, content), content[first.end_byte : second.start_byte].decode(errors="replace")
        after = _text(second, content)
        if before != after and "=" not in before + after:
            yield first.start_byte, second.end_byte, f"{after}{between}{before}"


def _other_numbers(text: str) -> Iterator[str]:
    try:
        number = int(text, 0)
    except ValueError:
        return
    yield str(number + 1)
    if number > 0:
        yield str(number - 1)


def _is_text(node: Node) -> bool:
    """Whether the statement is a docstring or a call that only prints."""
    return any(child.type in ("string", "string_literal") for child in node.children)


def _text(node: Node, content: bytes) -> str:
    return content[node.start_byte : node.end_byte].decode(errors="replace")


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:59]}…"
