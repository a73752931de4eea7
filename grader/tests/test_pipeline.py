"""The way of a submission: its steps in order, an early record, and nothing left behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.attempt import Attempt, stage_name
from grader.cli.run import _STAGES as STAGES_SHOWN
from grader.core.case import Case
from grader.core.errors import Abandoned, DriverError, GraderError, ToolMissing, UsageError
from grader.core.verdict import Tool, Verdict, Visibility
from grader.labs.paged_kv.lab import lab
from grader.pipeline import STEPS, grade
from grader.runtime.native import replay
from grader.runtime.protocol import GradingOptions
from grader.system import sandbox
from grader.system.budget import Budget
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import changed, first_case, graded_text, made, right, second_case
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


def test_the_steps_are_the_table_of_contents() -> None:
    """In this order; the diagnosis is made again when more is known."""
    assert [stage_name(step) for step in STEPS] == [
        *(
            "collect",
            "build",
            "play",
            "compare",
            "resume",
            "inspect",
            "diagnose",
            "pinpoint",
            "diagnose",
            "score",
            "advise",
            "search",
        )
    ]


def test_progress_is_told_each_step_as_it_begins(tmp_path: Path) -> None:
    """Whoever waits wants to know for what."""
    told: list[str] = []
    grade(
        written(tmp_path, right()),
        lab(),
        [first_case()],
        GradingOptions(seed=1, memory_checker=False),
        progress=told.append,
    )

    assert told == [stage_name(step) for step in STEPS]
    assert STAGES_SHOWN.keys() == set(told)  # words for each


def test_a_build_that_fails_ends_the_way_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case is played for points; what it would have scored is told apart and never counts."""
    source = right() + "static int unused(void) { return 1; }\n"
    record = graded_text(source, first_case(), second_case())

    assert (record.verdict, record.score, record.outcomes) == (Verdict.COMPILE_ERROR, 0, ())
    assert record.would_score is not None
    assert 0 < record.would_score <= record.max_score


def test_missing_functions_are_stubbed_to_tell_what_it_would_have_scored() -> None:
    """The rest of the program runs; the stubs refuse."""
    record = graded_text(
        right().replace("int append_kv(", "int append(").replace("append(LLM", "append(LLM"),
        first_case(),
        made("create", "create_sequence 1 5 -> seq", rule="free-count"),
    )

    assert record.verdict is Verdict.COMPILE_ERROR
    assert record.would_score is not None
    assert 0 < record.would_score < record.max_score


def test_a_hopeless_build_would_have_scored_nothing() -> None:
    """Nothing to run: no number at all, or none above 0."""
    record = graded_text("int x\n", first_case())

    assert (record.verdict, record.score) == (Verdict.COMPILE_ERROR, 0)
    assert not record.would_score


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


def test_cases_in_another_order_earn_the_same() -> None:
    """No case depends on the one before it."""
    forth = grade(SAMPLES / "wrong_answer" / "next_fit_static_cursor", lab(), few_cases(1), GradingOptions(seed=1))
    back = grade(SAMPLES / "wrong_answer" / "next_fit_static_cursor", lab(), few_cases(1)[::-1], GradingOptions(seed=1))

    assert forth.rules == back.rules
    assert forth.verdict == back.verdict
    assert {outcome.case: outcome.passed for outcome in forth.outcomes} == {
        outcome.case: outcome.passed for outcome in back.outcomes
    }


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


def test_a_missing_tool_is_said_before_anything_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the command that installs it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing) as caught:
        grade(written(tmp_path, right()), lab(), [first_case()], GradingOptions(seed=1))

    assert "install" in str(caught.value).lower()


def test_a_path_that_is_not_there_is_the_users_slip(tmp_path: Path) -> None:
    """Not a zero for anybody."""
    with pytest.raises(UsageError, match="no such file"):
        grade(tmp_path / "nobody", lab(), [first_case()], GradingOptions(seed=1))


def test_the_folder_and_the_file_are_the_same_submission(tmp_path: Path) -> None:
    """But for the name that is shown."""
    (tmp_path / "deep" / "in").mkdir(parents=True)
    path = written(tmp_path / "deep" / "in", right())
    by_file, by_folder = (
        grade(one, lab(), [first_case()], GradingOptions(seed=1, memory_checker=False)) for one in (path, tmp_path)
    )

    assert by_file.submission.sha256 == by_folder.submission.sha256 != ""
    assert (by_file.score, by_file.outcomes) == (by_folder.score, by_folder.outcomes)


def test_an_outcome_tells_its_story_only_when_it_failed() -> None:
    """Steps with expected and actual; a clean case needs none."""
    record = graded_text(
        changed(("[offset] = kv_data;", "[offset] = kv_data + (kv_data == 12);")), first_case(), second_case()
    )
    failed, clean = record.outcomes

    assert (failed.passed, failed.clean, clean.passed, clean.clean) == (False, False, True, True)
    assert clean.steps == ()
    assert [step.call for step in failed.steps] == [str(operation) for operation in first_case().trace.operations]
    first = record.first_finding(failed)
    assert first is not None
    assert (first.operation, first.kind) == (4, "written")
    assert [record.findings[place].case for place in failed.findings] == ["made/first"] * len(failed.findings)


def test_a_long_case_is_shown_around_its_trouble() -> None:
    """Not all of 300 operations."""
    case = made("long", "create_sequence 1 1 -> seq; repeat i 1..200: append_kv 1 {i} -> 0", header="pool_blocks = 20")
    (outcome,) = graded_text(changed(("[offset] = kv_data;", "[offset] = kv_data + (kv_data == 150);")), case).outcomes

    assert len(outcome.steps) < 100
    assert any(step.call == "append_kv 1 150" for step in outcome.steps)


def test_a_hidden_case_keeps_its_visibility() -> None:
    """Reports decide by it what to show."""
    case = made("hidden", "create_sequence 1 5 -> seq", header='pool_blocks = 4; visibility = "hidden"')
    (outcome,) = graded_text(right(), case).outcomes

    assert outcome.visibility is Visibility.HIDDEN


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
    assert sum(record.cpu_seconds.values()) < 10


def test_every_failure_of_ours_is_a_grader_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A step that raises one is not caught on the way."""

    def broken(attempt: Attempt) -> Attempt:
        raise GraderError(f"no {attempt.lab.name} today")

    monkeypatch.setattr(pipeline, "STEPS", (*STEPS[:2], broken))
    with pytest.raises(GraderError, match="no paged_kv today"):
        grade(written(tmp_path, right()), lab(), [first_case()], GradingOptions(seed=1))


def test_a_grading_that_nobody_wants_is_abandoned(temporary: Path, tmp_path: Path) -> None:
    """While its program runs, and nothing is left behind."""
    asked = iter([False, False])
    with pytest.raises(Abandoned):
        grade(written(tmp_path, right()), lab(), few_cases(1), budget=Budget(unwanted=lambda: next(asked, True)))

    assert next(asked, None) is None
    assert list(temporary.iterdir()) == []
