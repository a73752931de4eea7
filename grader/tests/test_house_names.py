"""Names of the house: each says what it holds, a class name exists once, and only a package's face lists its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from grader.tests.support.house import here, modules, tree

_NO_NAMES = frozenset({"one", "found", "said", "made", "chosen", "kept", "told"})
"""They say that there is something, not what."""


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds: variables, parameters, fields, functions, classes."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def test_a_name_says_what_it_holds() -> None:
    """No variable, parameter, field or function is called by a word that fits everything."""
    nameless = [
        f"{here(path, getattr(node, 'lineno', 0))}: {name}"
        for path in modules().values()
        for node in ast.walk(tree(path))
        for name in bound_names(node)
        if name.strip("_") in _NO_NAMES
    ]

    assert nameless == []


def test_a_class_name_exists_once() -> None:
    """A reader who searches for a class of the grader comes to one place; an oracle has its document's words."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.walk(tree(path)) if module.startswith("grader.") else ():
            if isinstance(node, ast.ClassDef):
                places[node.name.strip("_")].append(here(path, node.lineno))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_only_a_package_lists_its_names() -> None:
    """In any other module everything without an underscore may be imported."""
    lists = [
        here(path, node.lineno)
        for path in modules().values()
        if path.name != "__init__.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Name) and node.id == "__all__"
    ]

    assert lists == []
