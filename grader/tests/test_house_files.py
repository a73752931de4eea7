"""What never stands in a file of the house: a lab's name in a generic module, somebody's path, an unlocked package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from grader.labs import LABS, open_lab
from grader.tests.support.command import ROOT
from grader.tests.support.house import here, modules, tree
from grader.tests.trials.__main__ import TRIALS

_MAY_NAME_A_LAB = re.compile(
    r"(?!grader/|reference/)|grader/(?:labs/(?:\w+/|__init__)|bench/|tests/)|reference/\w+/|.*\.md$"
)
_COMMAND = re.compile(r"^ *(?:grade|scripts/\w+) .*", re.MULTILINE)
"""A line of a help text that shows a command, which may name a submission."""

_TOOLS_OF_C = re.compile(r"gcc|valgrind|malloc|\bfree\b", re.IGNORECASE)


@cache
def house_files() -> tuple[Path, ...]:
    """All files that git keeps, or would keep."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a clone")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return tuple(path for path in paths if path.is_file())


def mentioned(words: re.Pattern[str], allowed: tuple[str, ...]) -> list[str]:
    """Where names and texts match, except in docstrings and in modules whose names begin as allowed."""
    found = []
    for path in (path for module, path in modules().items() if not f"{module}.".startswith(allowed)):
        nodes = list(ast.walk(tree(path)))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
        for node in nodes:
            texts = [node.value] if isinstance(node, ast.Constant) and id(node) not in docs else []
            texts += [getattr(node, name) for name in ("id", "attr", "name", "arg") if hasattr(node, name)]
            if any(isinstance(text, str) and words.search(text) for text in texts):
                found.append(here(path, node.lineno))  # type: ignore[attr-defined]
    return found


def names_of_labs() -> re.Pattern[str]:
    """A pattern of the names that labs bring along: calls, settings, numbers and headers; no ordinary words."""
    words: set[str] = set()
    for lab in map(open_lab, LABS):
        grammar = lab.grammar
        words |= {lab.name, lab.source_name, *grammar.operations, *grammar.settings, *grammar.constants}
        for header in (path for path in lab.starter.values() if path.suffix == ".h"):
            code = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
            words.update(re.findall(r"\w+", code))
    names = sorted(word for word in words if re.search(r"\w_\w|[A-Z]{2}[a-z]", word) and not word.endswith("_t"))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])")


def test_every_trial_is_run_by_all() -> None:
    """A module that `scripts/test --all` does not start would be forgotten."""
    modules_of_trials = {path.stem for path in (ROOT / "grader" / "tests" / "trials").glob("[!_]*.py")}

    assert {trial.name for trial in TRIALS} == modules_of_trials


_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)")
_NAMED_FILE = re.compile(r"`([\w./]+/[\w.]+\.(?:py|c|h|toml|md|jinja|js))(?:: ([\w.]+))?`")


def test_readmes_name_what_exists() -> None:
    """Links, and files by their paths from the page, the top or `grader/`, with the names that are said to be there."""
    dead = []
    for page in (path for path in house_files() if path.name == "README.md"):
        text, roots = page.read_text(encoding="utf-8"), (page.parent, ROOT, ROOT / "grader")
        dead += [f"{here(page, 1)} {link}" for link in _LINK.findall(text) if not (page.parent / link).exists()]
        for name, inside in _NAMED_FILE.findall(text):
            file = next((root / name for root in roots if (root / name).is_file()), None)
            is_pattern = any(part.partition(".")[0].isupper() for part in name.split("/"))
            if not is_pattern and (file is None or inside.rpartition(".")[2] not in file.read_text(encoding="utf-8")):
                dead.append(f"{here(page, 1)} {name} {inside}")

    assert dead == []


def test_generic_modules_know_no_lab() -> None:
    """Neither its name nor one that it brings along, in code, comments, docstrings and templates."""
    names, known = names_of_labs(), []
    for path in house_files():
        place = path.relative_to(ROOT).as_posix()
        if not _MAY_NAME_A_LAB.match(place):
            text = _COMMAND.sub("", path.read_text(encoding="utf-8"))
            known += [f"{place}: {name}" for name in names.findall(text)]

    assert known == []


def test_only_the_native_runtime_knows_the_tools_of_c() -> None:
    """Pipeline, judge, reports and commands take the names of compiler and memory checker from a runtime's record."""
    labs = [f"grader.labs.{entry.folder}." for entry in LABS.values()]  # a lab speaks of its own matter
    of_c = ("reference.", "grader.runtime.native.", *labs, "grader.bench.", "grader.bundles.")

    assert mentioned(_TOOLS_OF_C, of_c) == []


_NOWHERE = {
    "a path of somebody's machine": re.compile(rb"(?<![\w.])/(?:root|home|Users|work|workspace|mnt/[a-z])/[\w.]"),
    "a registry": re.compile(
        rb"pypi\.(?:org|python)|pythonhosted\.org|index-url[ =]+\w+:|registry\.npmjs|/simple/?(?=[\s\"'])"
    ),
    "somebody's address": re.compile(
        rb"[\w.+-]+@(?!example\.|users\.noreply)[\w-]+\.(?:com|org|net|edu|cn|de|io|ch|fr|jp|uk)\b"
    ),
}


@pytest.mark.parametrize("what", _NOWHERE)
def test_no_file_holds(what: str) -> None:
    """What is true on one machine only, or belongs to somebody."""
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode(errors='replace')}"
        for path in house_files()
        if path.name != Path(__file__).name
        for match in _NOWHERE[what].finditer(path.read_bytes())
    ]

    assert found == []


@pytest.mark.parametrize(
    ("name", "extra", "groups"),
    [
        ("grading", "", ["setup", "bootstrap"]),
        ("dask", "dask", []),
        ("mutants", "mutants", []),
        ("numpy", "numpy", []),
        ("similar", "similar", []),
        ("watch", "watch", []),
        ("dev", "dask", ["dev"]),
    ],
)
def test_a_lock_pins_every_dependency_with_a_hash(name: str, extra: str, groups: list[str]) -> None:
    """What pyproject asks for is there, in a version that it allows; nothing says where to fetch it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / ".ci" / f"{name}.lock").read_text(encoding="utf-8")
    pinned, for_grading = _pinned(name), _pinned("grading")
    entries = re.split(r"^(?=[\w.-]+(?:\[\w+\])?==)", lock, flags=re.MULTILINE)[1:]
    wanted = [Requirement(line) for line in project["project"]["dependencies"]]
    wanted += [Requirement(line) for line in project["project"]["optional-dependencies"].get(extra, [])]
    wanted += [Requirement(line) for group in groups for line in project["dependency-groups"][group]]

    assert [one.name for one in wanted if pinned.get(one.name.lower(), "") not in one.specifier] == []
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert {one: version for one, version in pinned.items() if for_grading.get(one, version) != version} == {}
    assert not re.search(r"^\s*(?:-i|--index-url|--extra-index-url|--find-links)\b|https?://", lock, re.MULTILINE)


def _pinned(name: str) -> dict[str, str]:
    lock = (ROOT / ".ci" / f"{name}.lock").read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==([\w.]+)", lock, re.MULTILINE)
    return {one.lower(): version for one, version in found}


def test_imports_of_others_are_declared() -> None:
    """Every package that our code imports is a dependency, not somebody else's; pytest has what only it loads."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    declared = {Requirement(line).name for lines in (project["project"]["dependencies"], *extras) for line in lines}
    roots = {
        str(name).partition(".")[0]
        for module, path in modules().items()
        if not module.startswith(("grader.pytest_", "grader.bench."))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module])
    }
    foreign = roots - sys.stdlib_module_names - {"reference", "grader"}

    assert {"pyyaml" if name == "yaml" else name for name in foreign} <= declared
