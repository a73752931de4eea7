"""Cases that users wrote: drawn, checked by the reference, tried on programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.assignment.source import collect
from grader.classroom.calibration import TriedProgram, trials, tried
from grader.cli.cases import failed_by
from grader.cli.options import own_cases
from grader.core.errors import ExitCode
from grader.labs.paged_kv.lab import lab
from grader.tests.support.command import SAMPLES, grade

_HEAD = """
title       = "an append after a fork"
handout     = "Part 2.3/cow-protocol; Task 4/cow-copy"
rule        = "{rule}"
visibility  = "public"
pool_blocks = 8
"""
_OPERATIONS = """
create_sequence 1 20 -> seq
fork_sequence   1 2  -> seq
append_kv       2 77 -> 0
"""


def write(folder: Path, name: str, operations: str = _OPERATIONS, *, rule: str = "cow") -> Path:
    """A case file of this name."""
    path = folder / f"{name}.toml"
    path.write_text(f"{_HEAD.format(rule=rule)}\noperations = '''{operations}'''\n", encoding="utf-8")
    return path


def test_a_case_catches_what_only_the_tool_for_memory_sees() -> None:
    """Of a sample that is labelled for it."""
    name = "append/full_pool_but_room_in_the_block"
    case = case_files.load(lab().cases / f"{name}.toml", lab().grammar, seed=1)
    programs = [program("search_reads_one_past_ref_count", *rules) for rules in (("memory-error",), ("first-fit",))]

    assert failed_by(lab(), [case], programs, jobs=1) == [{name}, frozenset()]


def program(name: str, *rules: str, right: bool = False) -> TriedProgram:
    """A labelled sample."""
    (path,) = SAMPLES.glob(f"*/{name}/llm_memory.c")
    return TriedProgram(name=name, source=collect(path, lab().source_name, rule=""), right=right, rules=rules)


def test_a_case_is_tried_on_right_and_wrong_programs(tmp_path: Path) -> None:
    """What it catches, which rule it guards, and what no other case of the trial catches."""
    write(tmp_path, "forks")
    write(tmp_path, "null", "\n@NULL append_kv 1 1 -> -1\ncreate_sequence 1 1 -> seq\n", rule="null-check")
    programs = (
        program("goto_cleanup_rollback", right=True),
        program("no_copy_on_write", "cow"),
        program("cow_copies_60_bytes", "cow"),
        program("free_keeps_l2_tables", "leak"),
        program("sign_compare", "compile"),
    )
    its_lab, cases = own_cases([tmp_path], None, None)
    failed = list(tried(its_lab, cases, programs, jobs=2))
    forks, null = trials(cases, programs, failed)

    assert its_lab.name == "paged_kv"
    assert failed[-1] is None
    assert (forks.unfair_to, null.unfair_to, null.caught) == ((), (), ())
    assert forks.caught == ("no_copy_on_write", "cow_copies_60_bytes")
    assert forks.guards == (("cow", 2, 2),)
    assert forks.alone == forks.caught


def test_a_case_that_right_programs_fail_is_called_unfair(tmp_path: Path) -> None:
    """Here a wrong program passes for a right one."""
    write(tmp_path, "forks")
    _, cases = own_cases([tmp_path], "paged_kv", None)
    programs = (program("no_copy_on_write", right=True),)
    (trial,) = trials(cases, programs, list(tried(lab(), cases, programs, jobs=1)))

    assert trial.unfair_to == ("no_copy_on_write",)
    assert trial.caught == ()


def test_a_case_is_tried_on_a_class(tmp_path: Path) -> None:
    """On what was handed in; who fails it is named, and nothing is stored."""
    store, handed_in = tmp_path / "class.sqlite", tmp_path / "class"
    for name in ("no_copy_on_write", "goto_cleanup_rollback"):
        (path,) = SAMPLES.glob(f"*/{name}/llm_memory.c")
        (handed_in / name).mkdir(parents=True)
        (handed_in / name / "llm_memory.c").write_bytes(path.read_bytes())
    few = ("--case", "init/*", "--without-memory-checker")
    assert grade("batch", handed_in, "--store", store, *few).code != ExitCode.JUDGE_ERROR
    before = store.read_bytes()
    tried_on = grade("try", write(tmp_path, "forks"), "--class", store)

    assert tried_on.code == ExitCode.ACCEPTED
    assert "1 of 2 submissions fail it: no_copy_on_write" in tried_on.out
    assert store.read_bytes() == before


@pytest.mark.parametrize("command", ["explain", "try"])
def test_what_is_wrong_in_a_file_has_its_line(command: str, tmp_path: Path) -> None:
    """A claim that the reference contradicts, and an operation that the lab does not have."""
    path = write(tmp_path, "wrong", "\ncreate_sequence 1 20 -> NULL\n")
    contradicted = grade(command, path)

    assert contradicted.code == ExitCode.BAD_INPUT
    assert f"{path}:9: " in contradicted.err
    assert grade(command, write(tmp_path, "leap", "\nleap 1 -> 0\n"), "--lab", "paged_kv").code == ExitCode.BAD_INPUT


def test_a_file_of_no_assignment_needs_the_option(tmp_path: Path) -> None:
    """And a file that is not there is an error of its own."""
    unclear = grade("try", write(tmp_path, "x", rule="nothing"))

    assert unclear.code == ExitCode.BAD_INPUT
    assert "--lab" in unclear.err
    assert grade("try", tmp_path / "none.toml").code == ExitCode.BAD_INPUT
    assert grade("try", write(tmp_path, "y"), "--run", "1").code == ExitCode.BAD_INPUT
