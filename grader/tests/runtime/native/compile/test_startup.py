"""What no scan of the object found is found in what objcopy and the linkers made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.core.verdict import Verdict
from grader.runtime.native.compile import suspects
from grader.runtime.native.compile.elf import Elf
from grader.runtime.native.compile.harness_objects import HarnessObjects, harness_objects
from grader.runtime.native.project import CProject
from grader.system.process import Completed
from grader.system.sandbox import Workspace
from grader.tests.support.command import SAMPLES
from grader.tests.support.scanned import CONSTRUCTOR, DESTRUCTOR, accepted, assembly, below, graded, on_x86

_RELOCATIONS = assembly('.section .rela.got,\\"a\\",@4', ".quad 0,37,0x401000")
_UNIQUE = below(
    "long other(void);",
    "long other(void) { return -1; }",
    '__asm__(".globl \\"a#name\\"\\n.type \\"a#name\\",@gnu_unique_object\\n.set \\"a#name\\",other");',
)
_OVERTAKEN = {
    "constructor": (CONSTRUCTOR, {"odd-start"}, ".init_array of "),
    "destructor": (DESTRUCTOR, {"odd-start"}, ".fini_array of "),
    "code in .init": (assembly('.section .init,\\"ax\\"', "nop"), {"odd-start"}, ".init of "),
    "relocations": (_RELOCATIONS, {"odd-start"}, " that functions choose"),
    "a library's place": (assembly('.section .interp,\\"a\\"', '.asciz \\"mine\\"'), {"odd-start"}, "interpreter "),
}
"""Programs, and what is found although nothing is suspected of the object."""


def _blind(_: Elf) -> tuple[suspects.Suspect, ...]:
    return ()


def _none(_: Elf) -> tuple[str, ...]:
    return ()


@on_x86
@pytest.mark.parametrize("name", _OVERTAKEN)
def test_a_program_is_compared_with_a_known_good_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the loader does, and what is called before main and after it; a difference is the file's fault."""
    source, kinds, words = _OVERTAKEN[name]
    monkeypatch.setattr(suspects, "suspects", _blind)
    record = graded(source)

    assert (record.verdict, record.outcomes) == (Verdict.REJECTED, ())
    assert {finding.kind for finding in record.findings} == kinds
    assert any(words in finding.field for finding in record.findings)


@on_x86
def test_a_name_that_others_see_is_found_after_objcopy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hides all but the six functions; one that it left would take the place of libc's."""
    monkeypatch.setattr(suspects, "suspects", _blind)
    monkeypatch.setattr("grader.runtime.native.compile.suspects.unexpected_symbols", _none)
    record = graded(_UNIQUE)

    assert record.verdict is Verdict.REJECTED
    assert {finding.kind for finding in record.findings} == {"odd-symbol"}


def test_where_there_is_no_gold_ld_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Newer systems leave it out; it is not even started."""
    usual = shutil.which
    lanes: list[str] = []
    run = Workspace.run

    def seen(project: CProject) -> HarnessObjects:
        made = harness_objects(project)
        lanes.extend(made.starts)
        return made

    def without_gold(work: Workspace, command: list[str], **options: object) -> Completed:
        assert callable(command) or command[0] != "ld.gold"
        return run(work, command, **options)  # type: ignore[arg-type]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("grader.runtime.native.compile.harness_objects._READ", {})
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if name == "ld.gold" else usual(name, *rest))
    monkeypatch.setattr("grader.runtime.native.compile.toolchain.harness_objects", seen)
    monkeypatch.setattr(Workspace, "run", without_gold)
    accepted((SAMPLES / "accepted" / "yoda_crlf" / "llm_memory.c").read_text(encoding="utf-8"))

    assert {"program static by ld", "program dynamic"} <= set(lanes)
    assert "program static" not in lanes
