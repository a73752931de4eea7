"""The rules of the house: who imports whom, who may print, how long a module is, and what never stands in a file."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from grader.tests.support.command import ROOT
from grader.tests.support.house import elsewhere, here, modules, tree

_MOST_LINES, _MOST_FUNCTION_LINES = 500, 60

ROOMS = (
    ("reference",),
    ("grader.__init__", "grader.core"),
    ("grader.system",),
    ("grader.runtime",),
    ("grader.runtime.native", "grader.runtime.python"),
    ("grader.assignment",),
    ("grader.judge",),
    ("grader.attempt",),
    ("grader.result", "grader.report", "grader.search"),
    ("grader.pipeline",),
    ("grader.labs",),
    ("grader.classroom",),
    ("grader.bundles",),
    ("grader.cli", "grader.pytest_plugin", "grader.bench"),
    ("grader.__main__",),
)
"""From the bottom to the top: a module imports from its own room and from rooms on lines above its own."""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Modules of ours that this one imports, anywhere in it, with the line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [
                name if name in modules() or f"{name}.__init__" in modules() else str(node.module) for name in inner
            ]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in ("reference", "grader"):
                yield node.lineno, f"{name}.__init__" if f"{name}.__init__" in modules() else name


def room(module: str) -> str:
    """The longest name of the table that a module's own begins with."""
    fitting = [name for line in ROOMS for name in line if f"{module}.".startswith(f"{name}.")]
    return max(fitting, key=len, default="")


def level(module: str) -> int:
    """The line of a module's room in the table; -1 for a module without a room."""
    return next((number for number, names in enumerate(ROOMS) if room(module) in names), -1)


def lines_of_functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of ours, methods and inner ones too."""
    for path in modules().values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_every_module_has_a_room() -> None:
    """A new package is put into the table above before it is imported."""
    assert [module for module in modules() if level(module) < 0] == []


def test_imports_go_strictly_down() -> None:
    """Never up, never sideways, but within a room."""
    wrong = [
        f"{here(path, line)}: {module} imports {imported}"
        for module, path in modules().items()
        for line, imported in imports(path)
        if level(imported) >= level(module) and room(imported) != room(module)
    ]

    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    """Within rooms neither; `graphlib` says where one is."""
    graph = {module: {imported for _, imported in imports(path)} - {module} for module, path in modules().items()}

    assert list(TopologicalSorter(graph).static_order())


def test_the_reference_knows_nothing_of_the_grader() -> None:
    """It is what is right, not who compares."""
    wrong = [
        here(path, line)
        for module, path in modules().items()
        for line, imported in imports(path)
        if module.startswith("reference.") and imported.startswith("grader")
    ]

    assert wrong == []


def test_only_labs_choose_a_runtime() -> None:
    """The pipeline calls one through `grader.runtime.protocol` only. Benchmarks measure the parts of one."""
    users = {
        module
        for module, path in modules().items()
        for _, imported in imports(path)
        if imported.startswith(("grader.runtime.native", "grader.runtime.python"))
    }
    choosing = ("grader.labs", "grader.runtime.native", "grader.runtime.python", "grader.bench")

    assert {user for user in users if not user.startswith(choosing)} == set()


def test_the_runtimes_know_nothing_of_each_other() -> None:
    """What both need is directly in `grader.runtime`."""
    for mine, theirs in (("native", "python"), ("python", "native")):
        wrong = [
            here(path, line)
            for module, path in modules().items()
            for line, imported in imports(path)
            if module.startswith(f"grader.runtime.{mine}") and imported.startswith(f"grader.runtime.{theirs}")
        ]

        assert wrong == []


def test_what_runs_beside_a_students_code_needs_only_python() -> None:
    """The standard library, its own files, and a driver the submission; the grader imports none of them."""
    wrong = []
    for path in elsewhere():
        beside = {
            path.parent.name,
            *(other.stem for other in [*path.parent.glob("*.py"), *path.parent.glob("given/*")]),
        }
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                own = [str(node.module)] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                roots = {name.partition(".")[0] for name in own}
                wrong += [here(path, node.lineno) for _ in roots - sys.stdlib_module_names - beside]
    never = [path for path in elsewhere() if path.parent.name != "given"]  # what students are given is ours
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in never}
    wrong += [here(path, line) for path in modules().values() for line, imported in imports(path) if imported in names]

    assert elsewhere()
    assert wrong == []
    assert {here(path, 0) for path in elsewhere() if len(path.read_text("utf-8").splitlines()) > _MOST_LINES} == set()


def test_only_the_command_line_prints() -> None:
    """Values out, one renderer; benchmarks print too, they are a command."""
    wrong = [
        here(path, node.lineno)
        for module, path in modules().items()
        if not module.startswith(("grader.cli", "grader.bench"))
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Name) and node.id in ("print", "breakpoint", "input"))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr", "sys.exit"))
    ]

    assert wrong == []


def test_only_the_doors_of_reports_make_documents() -> None:
    """Whatever else a format is made of, a door has escaped it: no `Document` elsewhere, no markup taken as it is."""
    doors = ("grader.report.document", "grader.report.page")
    wrong = [
        here(path, node.lineno)
        for module, path in modules().items()
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("Document", "Markup"))
        or (isinstance(node, ast.Call) and ast.unparse(node).startswith(("cast(Document", "cast('Document")))
        if module not in doors
    ]
    report = ROOT / "grader" / "report"
    wrong += [
        str(path.relative_to(ROOT))
        for path in [*report.rglob("*.jinja"), *report.rglob("*.py")]
        if re.search(r"\|\s*safe\b|autoescape\s+(false|=\s*False)", path.read_text(encoding="utf-8"))
    ]

    assert wrong == []


def test_one_door_to_other_programs() -> None:
    """`subprocess` in process.py alone; no shell, no fork and no exec anywhere.

    The rival of the benchmark uses no sandbox: its cost is one of the figures.
    """
    allowed = ("grader.system.process", "grader.bench.subject")
    doors = re.compile(r"os\.(system|popen|fork|forkpty|exec\w+|spawn\w+|posix_spawn\w*)|pty\.\w+|multiprocessing")
    wrong = []
    for module, path in modules().items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
                if "subprocess" in names and module not in allowed:
                    wrong.append(here(path, node.lineno))
            if isinstance(node, ast.Attribute) and doors.fullmatch(ast.unparse(node)):
                wrong.append(here(path, node.lineno))
            if isinstance(node, ast.keyword) and node.arg == "shell":
                wrong.append(here(path, node.value.lineno))

    assert wrong == []


def test_nobody_changes_the_working_folder() -> None:
    """A path is passed, not stood in."""
    text = "chd" + "ir"
    wrong = [
        path.name for path in modules().values() if re.search(rf"\b(f?{text})\(", path.read_text(encoding="utf-8"))
    ]

    assert wrong == []


@pytest.mark.parametrize("package", ["reference", "grader"])
def test_modules_are_short(package: str) -> None:
    """Tests too: a reader holds one in mind."""
    long = {
        str(path.relative_to(ROOT)): count
        for path in (ROOT / package).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > _MOST_LINES
    }

    assert long == {}


def test_functions_are_short() -> None:
    """Signature and docstring counted."""
    long = {
        here(path, node.lineno): length
        for path, node in lines_of_functions()
        if (length := (node.end_lineno or 0) - node.lineno + 1) > _MOST_FUNCTION_LINES
    }

    assert long == {}


def test_what_is_public_is_described() -> None:
    """Modules, classes, functions and methods whose names begin with no underscore."""
    silent = [str(path.relative_to(ROOT)) for path in modules().values() if ast.get_docstring(tree(path)) is None]
    for path in modules().values():
        top = [
            node for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"
        ]
        inner = [node for one in top if isinstance(one, ast.ClassDef) for node in one.body]
        nodes = [node for node in [*top, *inner] if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        bare = [node for node in nodes if node.name[0] != "_" and not ast.get_docstring(node)]
        silent += [f"{here(path, node.lineno)} {node.name}" for node in bare]

    assert [name for name in silent if not name.endswith("__main__.py")] == []


def test_every_function_is_fully_annotated() -> None:
    """Each argument but self and cls, and what comes back."""
    bare = []
    for path, node in lines_of_functions():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        missing = [
            one.arg
            for one in arguments
            if one is not None and one.annotation is None and one.arg not in ("self", "cls")
        ]
        if missing or node.returns is None:
            bare.append(f"{here(path, node.lineno)} {node.name} {missing}")

    assert bare == []


def test_every_test_says_what_it_shows() -> None:
    """One sentence each."""
    silent = [
        f"{here(path, node.lineno)} {node.name}"
        for path in [
            *(ROOT / "grader" / "tests").rglob("test_*.py"),
            *(ROOT / "reference" / "tests").rglob("test_*.py"),
        ]
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]

    assert silent == []
