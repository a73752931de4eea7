"""Look at the text of a submission before it is executed: can it be compiled, and which modules does it name?

Only a check needs this file and the modules that this file imports, so no other start loads them.
"""

import ast
import codecs
import contextlib
import re
import sys

from cage import may_be_imported

_MOST_PROBLEMS = 20
_MOST_NAMES = 100
"""The most modules that are imported for a program."""
_MOST_CHARACTERS = 100


_THIS_PYTHON = " for Python {}.{}, with which it is graded".format(*sys.version_info)
"""The end of a message about syntax: the syntax of a newer Python is a mistake here."""


def preload_encoding(source):
    """Load the encoding that a text names, because the process that compiles it cannot open a file."""
    named = re.match(rb"(?:[ \t\f]*#[^\r\n]*\r?\n|\s*\r?\n)?[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]{1,40})", source)
    if named:
        with contextlib.suppress(Exception):  # the compiler reports this
            codecs.lookup(named[1].decode("ascii"))


def look(source, file, importable):
    """Return what is wrong with a text (line, column, message), the modules that it names, and its empty functions.

    `importable` are the modules that may be imported in addition to those of the standard library.
    """
    if b"\0" in source:
        line = source[: source.index(b"\0")].count(b"\n") + 1
        return [[line, 0, "there is a null byte, which is no text: save the file again, as UTF-8"]], [], []
    try:
        tree = compile(source, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        newer = error.msg == "invalid syntax" or error.msg.startswith("f-string")
        column = max(error.offset or 0, 0)  # -1 for an unknown encoding
        return [[error.lineno or 1, column, error.msg + _THIS_PYTHON * newer]], [], []
    except RecursionError:
        return [[1, 0, "it is nested too deep to be compiled"]], [], []
    except MemoryError:
        return [[1, 0, "it is nested too deep, or is too long, to be compiled"]], [], []
    except Exception as error:  # the text's bytes, or the encoding that it names, are wrong
        return [[1, 0, f"it cannot be compiled: {type(error).__name__}: {error}"[:_MOST_CHARACTERS]]], [], []
    problems, names = [], {}
    for node in ast.walk(tree):
        for name in _imported(node):
            names[name] = None
    for node in tree.body:
        for name in _imported(node):
            if not may_be_imported(name, importable) and len(problems) < _MOST_PROBLEMS:
                shown = name[:_MOST_CHARACTERS]
                problems.append(
                    [node.lineno, node.col_offset + 1, f"{shown} is not among the modules that may be imported"]
                )
    return problems, [name for name in names if may_be_imported(name, ())][:_MOST_NAMES], _empty(tree)[:_MOST_NAMES]


def _empty(tree):
    """Return the names of the functions that only return, and of the classes whose constructor only returns."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            constructors = [each for each in node.body if getattr(each, "name", "") == "__init__"]
            names[node.name] = any(_only_returns(each) for each in constructors)
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = names.get(node.name, True) and _only_returns(node)
    return [name for name, empty in names.items() if empty]


def _only_returns(function):
    """Return whether a body has at most a docstring and a statement: return CONSTANT or raise NotImplementedError."""
    body = [each for each in function.body if not isinstance(each, ast.Pass) and not _is_constant(each)]
    if not body:
        return True
    names = {getattr(node, "id", "") for node in ast.walk(body[0]) if isinstance(node, (ast.Name, ast.Call))}
    demanded = {"NotImplementedError", ""} if isinstance(body[0], ast.Raise) else set()
    return len(body) == 1 and isinstance(body[0], (ast.Return, ast.Raise)) and names <= demanded


def _is_constant(statement):
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _imported(node):
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [("." * node.level) + (node.module or "")]
    return []
