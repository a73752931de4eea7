"""What a command does not need is not imported for it: starting must not cost more than grading (grader/README.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from grader.tests.support.command import FEW, ROOT, SAMPLES, environment

_GRADE = """import sys
from grader.cli import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, 1), end.code
print(*sys.modules)"""
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


def test_a_right_program_needs_no_search_for_what_is_wrong() -> None:
    """Nor another report than the one that is printed, nor the judging of other labs."""
    modules = imported(_GRADE, "run", _RIGHT, *FEW)

    assert {"grader.report.text", "grader.runtime.native.valgrind.memcheck"} <= modules
    assert not modules & {
        *(f"grader.report.{name}" for name in ("html", "start_here", "picture", "gradebook", "sarif", "junit")),
        *(f"grader.runtime.native.{name}" for name in ("advice", "lines", "compile.diagnostics")),
        *("grader.search.player", "grader.search.hunt", "grader.judge.plain_judge", "grader.result.draw_states"),
        *("difflib", "zipfile", "traceback", "csv", "gzip"),
    }


def test_a_pytest_of_something_else_does_not_import_the_grader(tmp_path: Path) -> None:
    """Its plugin is loaded by every pytest of the environment."""
    (tmp_path / "test_something.py").write_text("def test_something(): pass\n", encoding="utf-8")
    program = """import sys, pytest
once = ["-p", "no:paged_kv_grader", "-p", "grader.pytest_plugin"]  # whether it is registered or not
assert pytest.main(["-q", "-p", "no:cacheprovider", *once, sys.argv[1]]) == 0
print(*sys.modules)"""
    ours = {name for name in imported(program, tmp_path) if name.partition(".")[0] in ("grader", "reference")}

    assert ours == {"grader", "grader.pytest_plugin"}
