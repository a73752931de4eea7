"""Names of the house: a class name exists once, and only a package lists its own names."""

from __future__ import annotations

import ast
from collections import defaultdict

from grader.tests.support.house import here, modules, tree


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
