"""The rooms that all languages share know the ways of none: no word of C, and nothing that one runtime alone uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from grader.tests.support.command import ROOT
from grader.tests.support.house import here, modules, tree

_WORDS_OF_C = re.compile(
    "sig(abrt|bus|fpe|ill|kill|segv|sys|term|trap|xcpu)|signals?|segfault|segmentation|coredump|errno|(long|set)jmp"
    "|wifsignaled|wtermsig|waitstatus|[mc]?alloc|realloc|free|freed|frees|unfreed|allocat(e|ed|es|ing|ions?)"
    "|canar(y|ies)|redzone|(over|under)run|uninit(ialized)?|dangling|heaps?|stacks?|address(es)?|pointers?|structs?"
    "|gcc|objcopy|addr2line|libc|valgrind|memcheck|(definitely|possibly|indirectly)lost|stillreachable"
)
"""Words, in lower case. `free` and `address` are among them: the free queue of a lab stands in that lab, and these
rooms need neither word. Not among them are the words of the record's own closed sets (memory error, leak, crash),
`bytes`, which a record is in any language, and `symbol`, which belongs to what a person may allow in a build."""

_PHRASE = re.compile(r"\bcore\s+dump|\bleak-whole\b", re.IGNORECASE)

_NATIVE, _PYTHON, _SHARED = "native", "python", "shared"


def rooms() -> Iterator[tuple[str, Path]]:
    """The modules of the judge, and those that stand directly in the runtime's folder."""
    for module, path in modules().items():
        if module.startswith("grader.judge.") or path.parent == ROOT / "grader" / "runtime":
            yield module, path


def words(line: str) -> Iterator[str]:
    """The words of a line in lower case; a name is split where its parts meet, and counts as a whole too."""
    for name in re.findall(r"\w+", line):
        yield name.lower()
        yield from (part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*", name))


def side(module: str) -> str:
    """The runtime that a module belongs to; the folder of a lab belongs to that of its submissions."""
    for language in (_NATIVE, _PYTHON):
        if f"{module}.".startswith(f"grader.runtime.{language}."):
            return language
    lab = re.match(r"grader\.labs\.(\w+)\.", module)
    if lab is None or (ROOT / "grader" / "labs" / f"{lab[1]}.py").exists():
        return _PYTHON if module == "grader.labs.python_lab" else _SHARED
    own = [path for name, path in modules().items() if name.startswith(f"grader.labs.{lab[1]}.")]
    native = any("grader.runtime.native" in path.read_text(encoding="utf-8") for path in own)
    return _NATIVE if native else _PYTHON


def defined(path: Path) -> set[str]:
    """The names that a module gives to others."""
    names = {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def users() -> dict[tuple[str, str], set[str]]:
    """By module and name: the sides that import the name; the module itself where it uses it."""
    found: dict[tuple[str, str], set[str]] = {}
    for module, path in modules().items():
        if module.startswith("grader.bench."):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found.setdefault((str(node.module), alias.name), set()).add(side(module))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.setdefault((module, node.id), set()).add(_SHARED)
    return found


def test_shared_rooms_have_no_word_of_c() -> None:
    """Neither in code nor in docstrings: what C does with memory becomes a symptom in its runtime."""
    found = [
        f"{here(path, number)}: {word}"
        for _, path in rooms()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for word in [*filter(_WORDS_OF_C.fullmatch, words(line)), *_PHRASE.findall(line)]
    ]

    assert found == []


def test_nothing_in_shared_rooms_is_used_by_one_runtime_only() -> None:
    """What only one uses stands with it; what nobody uses, nowhere."""
    importers = users()
    found = {
        f"{module}.{name}": sorted(importers.get((module, name), ()))
        for module, path in rooms()
        for name in defined(path)
        if importers.get((module, name), set()) <= {_NATIVE} or importers.get((module, name), set()) <= {_PYTHON}
    }

    assert found == {}
