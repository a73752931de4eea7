"""Both lanes give the same record (grader.tests.trials.lanes compares all samples); lanes are used where they work."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from grader.core.errors import BrokenTool, CannotStart
from grader.runtime.native.compile import harness_objects
from grader.system import resources
from grader.tests.support.command import ROOT
from grader.tests.support.lanes import differing, in_both_lanes
from grader.tests.support.programs import native

_SAMPLES = (
    "accepted/c11_showcase",
    "memory_error/create_compares_unset_entry",
    "memory_leak/free_keeps_l2_tables",
    "wrong_answer/no_copy_on_write",
)


@pytest.mark.parametrize("name", _SAMPLES)
def test_a_disputed_result_is_the_same_in_the_stock_lane(name: str) -> None:
    """Verdict, points, causes, findings, their sentences and lines: all but what the grading cost."""
    assert list(differing(*in_both_lanes(ROOT / "submissions" / "paged_kv" / name))) == []


def test_a_lane_that_links_and_does_not_play_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a linker on some processors: the first walk up the stack ends the program, long before its crash."""
    unwinder = tmp_path / "unwinder.c"
    unwinder.write_text(
        "int backtrace(void **stack, int depth) { (void)stack; (void)depth; __builtin_trap(); }\n", encoding="utf-8"
    )

    def sound(target: str, objects: Sequence[str]) -> list[str]:
        return [*harness_objects.dynamic(target, objects), "-g0"]

    def broken(target: str, objects: Sequence[str]) -> list[str]:
        return [*sound(target, objects), str(unwinder)]

    lanes = {"dynamic": harness_objects.dynamic, "sound": sound, "broken": broken}
    monkeypatch.setattr(harness_objects, "LANES", {"program": lanes, "checked": {"sound": sound}})
    made = tmp_path / "made"
    made.mkdir()
    harness_objects._make(native().project, made)
    works = json.loads((made / "starts").read_text(encoding="utf-8"))

    assert works.keys() == {"program dynamic", "program sound", "checked sound"}


def test_no_harness_is_made_for_an_unknown_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says which ones there are."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))

    with pytest.raises(BrokenTool, match=r"on x86-64 and 64-bit Arm only; this machine is riscv64$"):
        harness_objects._make(native().project, tmp_path)


def test_without_valgrind_the_harness_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lane is tried with it; natively all lanes are."""

    def not_there(*_: object, **__: object) -> NoReturn:
        raise CannotStart("valgrind: No such file or directory")

    version = resources.version
    monkeypatch.setattr(resources, "version", lambda tool: "" if tool == "valgrind" else version(tool))
    monkeypatch.setattr(harness_objects, "memcheck", not_there)
    harness_objects._make(native().project, tmp_path)
    works = json.loads((tmp_path / "starts").read_text(encoding="utf-8"))

    assert {name for name in works if name.startswith("checked")} == {"checked dynamic"}
    assert {"program static by ld", "program dynamic"} <= works.keys()
