"""The way of a submission: its steps in order, an early record, and nothing left behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.core.case import Case
from grader.core.errors import Abandoned, DriverError
from grader.core.verdict import Tool, Verdict
from grader.labs.paged_kv.lab import lab
from grader.pipeline import STEPS, grade
from grader.runtime.native import replay
from grader.runtime.protocol import GradingOptions
from grader.system import sandbox
from grader.system.budget import Budget
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import first_case, graded_text, right, seconds_here
from grader.tests.support.same_result import same_result


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files in which another user may work."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


@cache
def few_cases(seed: int) -> tuple[Case, ...]:
    """A few of the lab's cases, with their pools filled from this seed."""
    return tuple(case_files.load_folder(lab().cases, lab().grammar, seed=seed, pattern="append/*"))


def written(folder: Path, source: str) -> Path:
    """The source as a file that can be handed in."""
    path = folder / lab().source_name
    path.write_text(source, encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_the_seed_changes_the_pool_and_not_the_score(tmp_path: Path, seed: int) -> None:
    """Magic words are others, what is right stays right."""
    record = grade(written(tmp_path, right()), lab(), few_cases(seed), GradingOptions(seed=seed, memory_checker=False))

    assert (record.score, record.seed) == (record.max_score, seed)


@pytest.mark.parametrize(
    "sample",
    [
        "run_time_error/append_asserts_engine",
        "memory_leak/free_keeps_l2_tables",
        "wrong_answer/last_fit",
        "wrong_answer/l2_fill_counts_bytes",
    ],
)
def test_two_gradings_say_the_same(sample: str) -> None:
    """Points, findings, lines and texts repeat, uninitialised memory or not."""
    one, two = (grade(SAMPLES / sample, lab(), few_cases(1), GradingOptions(seed=1)) for _ in range(2))

    assert same_result(one, two)
    assert one.verdict is not Verdict.ACCEPTED


def test_nothing_is_left_in_the_temporary_folder(temporary: Path, tmp_path: Path) -> None:
    """After a grading, after a failing build, and after a failure of ours."""
    grade(written(tmp_path, right()), lab(), [first_case()], GradingOptions(seed=1))
    grade(written(tmp_path, "int x\n"), lab(), [first_case()], GradingOptions(seed=1))

    assert list(temporary.iterdir()) == []


def test_a_failure_of_ours_is_an_exception_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, tmp_path: Path
) -> None:
    """No record with fewer points comes of it."""
    monkeypatch.setattr(replay, "_MAGIC", 7)  # the driver does not know such a plan
    with pytest.raises(DriverError):
        grade(written(tmp_path, right()), lab(), [first_case()], GradingOptions(seed=1))

    assert list(temporary.iterdir()) == []


def test_what_was_really_active_is_in_the_record() -> None:
    """Compiler, command, kernel, protection, and the time of each step."""
    record = graded_text(right(), first_case(), valgrind=True)

    assert record.environment.command == (
        "gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb -c llm_memory.c -o llm_memory.o"
    )
    assert [(tool.tool, tool.name) for tool in record.environment.tools] == [
        (Tool.BUILD, "gcc"),
        (Tool.MEMORY_CHECKER, "Valgrind"),
    ]
    assert all(tool.version.startswith(tool.name.lower()) for tool in record.environment.tools)
    assert record.protection == sandbox.protection()
    assert {"build", "play", "memcheck"} <= set(record.cpu_seconds)
    assert sum(record.cpu_seconds.values()) < seconds_here(10)


def test_a_grading_that_nobody_wants_is_abandoned(temporary: Path, tmp_path: Path) -> None:
    """While its program runs, and nothing is left behind."""
    asked = iter([False, False])
    with pytest.raises(Abandoned):
        grade(written(tmp_path, right()), lab(), few_cases(1), budget=Budget(unwanted=lambda: next(asked, True)))

    assert next(asked, None) is None
    assert list(temporary.iterdir()) == []


def test_progress_shows_the_steps_that_are_taken(tmp_path: Path) -> None:
    """Each says for itself what it does; without a program only those are taken that need none."""
    told: dict[str, list[str]] = {"runs": [], "does not compile": []}
    options = GradingOptions(seed=1, memory_checker=False)
    grade(written(tmp_path, right()), lab(), [first_case()], options, progress=told["runs"].append)
    grade(written(tmp_path, "int x\n"), lab(), [first_case()], options, progress=told["does not compile"].append)

    assert told["runs"] == [step.says for step in STEPS]
    assert told["does not compile"] == ["building", "counting points"]
