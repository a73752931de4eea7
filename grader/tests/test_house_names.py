"""Names of the house: only a package's face lists its own."""

from __future__ import annotations

import ast

from grader.tests.support.house import here, modules, tree


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
