"""A compiler, an assembler or a linker that is ended: exit statuses and limits tell by whom, never a text."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from grader.core.verdict import Verdict
from grader.runtime.native.compile import toolchain
from grader.runtime.native.compile.toolchain import gcc_major
from grader.system.process import Completed
from grader.system.sandbox import COMPILE_LIMITS, LINK_LIMITS, Workspace
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import first_case, graded_text, right
from grader.tests.support.scanned import graded


@pytest.mark.usefixtures("steady")
def test_a_linker_that_computes_too_long_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane, once."""
    few = replace(LINK_LIMITS, silent_seconds=30, own_seconds=0.3)
    tried: list[str] = []
    usual = toolchain._tried

    def slowly(work: Workspace, command: list[str]) -> tuple[Completed, bool]:
        if "program" in command:
            tried.append(command[0])
        return usual(work, command)

    monkeypatch.setattr(toolchain, "_tried", slowly)
    monkeypatch.setattr(toolchain, "most_seconds", lambda _, limits: 0.2 if limits is few else 3.0)
    source = (SAMPLES / "compile_error/hostile_points_into_a_long_string_often/llm_memory.c").read_text()
    monkeypatch.setattr(toolchain, "LINK_LIMITS", few)
    record = graded_text(source, first_case())
    if record.verdict is Verdict.ACCEPTED and gcc_major() > 12:
        pytest.skip("the linkers of this machine are quick with that")

    assert record.verdict is Verdict.COMPILE_ERROR
    assert [finding.kind for finding in record.findings] == ["compiler-stopped"]
    assert len(tried) == 2  # the known-good file's is the other


def test_a_compiler_that_only_sleeps_is_ended_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: then it is the file's own."""
    asleep = replace(COMPILE_LIMITS, own_seconds=0.5)
    usual = Workspace.run

    def run(work: Workspace, command: list[str], **options: object) -> Completed:
        sleeps = not callable(command) and command[0] == "gcc" and b"DOZE" in work.read("llm_memory.c")
        return usual(work, ["sleep", "60"] if sleeps else command, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Workspace, "run", run)
    monkeypatch.setattr(toolchain, "COMPILE_LIMITS", asleep)
    record = graded_text(f"/* DOZE */\n{right()}", first_case())

    assert [finding.kind for finding in record.findings] == ["compiler-stopped"]
    assert COMPILE_LIMITS.own_seconds is not None
    assert COMPILE_LIMITS.own_seconds <= 3


def test_whatever_is_allowed_a_program_with_too_many_sections_is_not_run() -> None:
    """In it nothing would be looked at; another's gaps count as variables do."""
    folder = SAMPLES / "compile_error"
    source = (folder / "hostile_more_sections_in_the_program_than_are_read/llm_memory.c").read_text()
    aligned = (folder / "hostile_aligns_thirty_variables/llm_memory.c").read_text()
    many = graded(source, "ask", "append_kv", "client_request")

    assert (many.verdict, many.score) == (Verdict.COMPILE_ERROR, 0)
    assert "sections; 1000 are the bound" in many.findings[-1].message
    assert "MB of variables" in graded(aligned).findings[0].message


def test_a_stack_that_must_run_is_told_before_anything_runs() -> None:
    """By its name in `--allow` too."""
    sample = SAMPLES / "rejected/hostile_nested_function_with_trampoline"
    label = tomllib.loads((sample / "expect.toml").read_text())
    (finding,) = graded((sample / "llm_memory.c").read_text()).findings

    assert (str(finding.verdict), finding.kind, finding.field) == (label["verdict"], "stack-code", ".note.GNU-stack")
