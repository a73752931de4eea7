"""What a command does not need is not imported for it: starting must not cost more than grading (design: targets)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grader.classroom.store import open_store
from grader.tests.classroom.test_store import RUN, entry, kept
from grader.tests.support.command import FEW, ROOT, SAMPLES, environment

_GRADE = """import sys
from grader.cli import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, 1), end.code
print(*sys.modules)"""
_HEAVY = frozenset(
    {"dask", "distributed", "elftools", "hypothesis", "jinja2", "junitparser", "pydantic", "pytest", "rich"}
)
"""Packages of others. What a run needs of them is said test by test."""
_RIGHT = SAMPLES / "accepted" / "yoda_crlf"


def imported(program: str, *arguments: str | Path) -> set[str]:
    """All modules that a program has imported in the end; it prints them last."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("run", _RIGHT, *FEW), set()),
        (("run", _RIGHT, *FEW, "--format", "json"), {"pydantic"}),
        (("cases",), {"rich"}),
        (("explain", "append/copy_takes_all_64_bytes"), {"rich"}),
        (("doctor",), {"rich"}),
        (("schema",), {"pydantic"}),
        (("--help",), {"rich"}),
    ],
    ids=["run", "run as JSON", "cases", "explain", "doctor", "schema", "help"],
)
def test_a_command_imports_what_it_needs(arguments: tuple[str | Path, ...], needed: set[str]) -> None:
    """Of the heavy packages just these; a report needs rich only on a terminal."""
    roots = {name.partition(".")[0] for name in imported(_GRADE, *arguments)}

    assert roots & _HEAVY == needed


def test_a_right_program_needs_no_search_for_what_is_wrong() -> None:
    """Nor another report than the one that is printed, nor the judging of other labs."""
    modules = imported(_GRADE, "run", _RIGHT, *FEW)

    assert {"grader.report.text", "grader.runtime.native.valgrind.memcheck"} <= modules
    assert not modules & {
        *(f"grader.report.{name}" for name in ("html", "start_here", "picture", "gradebook", "sarif", "junit")),
        *(f"grader.runtime.native.{name}" for name in ("advice", "lines", "closure", "compile.macros")),
        *("grader.search.player", "grader.search.beyond", "grader.judge.plain_judge"),
        *("difflib", "zipfile", "traceback", "csv", "gzip"),
    }


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(("runs",), {"rich"}), (("show", "jane"), {"pydantic"}), (("export",), set()), (("diff", "1", "1"), set())],
    ids=["runs", "show", "export", "diff"],
)
def test_a_command_for_a_store_does_not_import_the_grading(
    tmp_path: Path, arguments: tuple[str, ...], needed: set[str]
) -> None:
    """Nothing is graded, so nothing of that is wanted."""
    with open_store(tmp_path / "grades.sqlite", create=True) as store:
        store.add_run(RUN, [entry("jane")])
        store.add_record(kept("key of jane"))
    modules = imported(_GRADE, *arguments, "--store", tmp_path / "grades.sqlite")

    assert {name.partition(".")[0] for name in modules} & _HEAVY == needed
    assert not modules & {"grader.pipeline", "grader.classroom.workers", "grader.labs", "grader.assignment.case_files"}


def test_a_command_does_not_import_the_others() -> None:
    """Nor the ways of a submission, where there is none."""
    modules = imported(_GRADE, "schema")
    ours = {name for name in modules if name.startswith(("grader.", "reference."))}

    assert "grader.cli.app" in ours
    assert not ours & {
        "grader.cli.run",
        "grader.cli.cases",
        "grader.pipeline",
        "grader.labs",
        "grader.assignment.case_files",
    }


def test_a_batch_of_this_machine_does_not_import_the_cluster() -> None:
    """Dask is for --executor alone."""
    modules = imported("import sys, grader.cli.batch; print(*sys.modules)")

    assert "grader.classroom.workers" in modules
    assert not {name.partition(".")[0] for name in modules} & {"dask", "distributed"}
    assert "grader.classroom.dask_cluster" not in modules


def test_a_pytest_of_something_else_does_not_import_the_grader(tmp_path: Path) -> None:
    """Its plugin is loaded by every pytest of the environment."""
    (tmp_path / "test_something.py").write_text("def test_something(): pass\n", encoding="utf-8")
    program = """import sys, pytest
once = ["-p", "no:paged_kv_grader", "-p", "grader.pytest_plugin.plugin"]  # whether it is registered or not
assert pytest.main(["-q", "-p", "no:cacheprovider", *once, sys.argv[1]]) == 0
print(*sys.modules)"""
    ours = {name for name in imported(program, tmp_path) if name.partition(".")[0] in ("grader", "reference")}

    assert ours == {"grader", "grader.pytest_plugin", "grader.pytest_plugin.plugin"}
