"""A class is graded on any executor: each result is kept at once, and nobody's trouble is another one's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.lab import Settings
from grader.assignment.source import Source
from grader.classroom import batch, workers
from grader.classroom.database import run_locks
from grader.classroom.discover import find_submissions
from grader.classroom.store import Run, Store
from grader.classroom.workers import Graded, ProcessPool, Task, grade
from grader.core.errors import OtherGrader
from grader.core.record import Record
from grader.labs import open_lab
from grader.tests.support.command import SAMPLES
from grader.tests.support.counter_lab import UNREADABLE, in_process
from grader.tests.support.pretended import FEW_IN_C, deadly

_COUNTER = Settings(lab="counter", memory_checker=False)
_IN_C = {
    "copied": "wrong_answer/no_copy_on_write",
    "sign_compare": "compile_error/sign_compare",
    "wrong": "wrong_answer/no_copy_on_write",
}


@pytest.fixture(autouse=True)
def before_all_else(counter: None) -> None:
    """Every test grades with the counter."""


@pytest.fixture
def c_folder(tmp_path: Path) -> Path:
    """A class of three in C, two of whom handed in the same."""
    made = tmp_path / "in C"
    made.mkdir()
    for name, sample in _IN_C.items():
        (made / f"{name}.c").write_bytes((SAMPLES / sample / "llm_memory.c").read_bytes())
    return made


def planned(store: Store, folder: Path, settings: Settings = _COUNTER) -> Run:
    """The class as a run."""
    submitted = find_submissions(folder, open_lab(settings.lab).source_name, "compile").submissions
    return batch.plan(store, workers.grading_plan(settings), folder, submitted)


def graded(
    store: Store,
    folder: Path,
    run: Run,
    make: workers.Workers = in_process,
    *,
    window: int = 2,
    again: Collection[str] = (),
) -> list[Graded]:
    """Grade a run; returns what was told."""
    told: list[Graded] = []
    with run_locks(folder) as claimed:
        batch.grade_run(store, run, make, claimed, window=window, tell=told.append, again=again)
    return told


@pytest.mark.parametrize("in_c", [False, True], ids=["counters", "C"])
def test_a_batch_gives_the_records_of_single_gradings(
    store: Store, folder: Path, c_folder: Path, *, in_c: bool
) -> None:
    """Whoever handed in the same has the same points, by one grading, and each the own name."""
    place, settings = (c_folder, FEW_IN_C) if in_c else (folder, _COUNTER)
    run = planned(store, place, settings)
    told = graded(store, place, run)
    chosen = workers.grading_plan(settings)
    alone: dict[str | None, Record] = {}

    assert len(told) == (2 if in_c else 3)
    assert (chosen.max_score < 100) == in_c
    for result in store.results(run):
        record = result.record
        same = alone.get(record.submission.sha256)
        if same is None:
            (path,) = place.glob(f"{result.name}.*")
            same = pipeline.grade(path, chosen.lab, chosen.cases, settings)
            alone[same.submission.sha256] = same
        assert record.submission.name == result.name
        assert record.submission.sha256 == same.submission.sha256
        assert (record.verdict, record.score, record.rules) == (same.verdict, same.score, same.rules)
        assert record.outcomes == same.outcomes
        assert record.max_score == run.max_score == chosen.max_score
    assert len(alone) == len(told)


def test_what_did_not_change_is_not_graded_again(store: Store, folder: Path) -> None:
    """The same class is the same run; a new one has what it shares with an older one from the start."""
    run = planned(store, folder)
    graded(store, folder, run)
    assert planned(store, folder) == run
    assert store.pending(run) == []

    (folder / "copied.sh").write_text("add() { :; }\n", encoding="utf-8")
    (folder / "notes.h").write_text("nobody includes this\n", encoding="utf-8")
    second = planned(store, folder)

    assert second.id != run.id
    assert len(store.pending(second)) == 1
    assert store.pending(run) == []


def test_a_record_depends_on_the_machine_as_far_as_its_numbers_do() -> None:
    """On Valgrind only where it is used; and what differs somewhere is said."""
    checking = workers.grading_plan(replace(FEW_IN_C, memory_checker=True)).made_of

    assert checking.keys() - workers.grading_plan(FEW_IN_C).made_of.keys() == {"valgrind"}
    assert (
        workers.differences({"cases": "1", "gcc": "2"}, {"cases": "3", "gcc": "4"}) == "other cases; gcc '2', not '4'"
    )
    assert workers.differences(checking, checking) == ""


def test_a_header_matters_where_the_source_names_it(store: Store, tmp_path: Path) -> None:
    """Directly or by another header; one that nobody can mean does not."""
    (tmp_path / "in" / "jane").mkdir(parents=True)
    files = {"llm_memory.c": '#include "a.h"\n', "a.h": '#include "b.h"\n', "b.h": "int b;\n", "c.h": "int c;\n"}
    keys = []
    for changed in ("", "b.h", "c.h"):
        for name, text in files.items():
            more = "int more;\n" if name == changed else ""
            (tmp_path / "in" / "jane" / name).write_text(text + more, encoding="utf-8")
        keys.append(next(store.results(planned(store, tmp_path / "in", FEW_IN_C))).entry.key)

    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    odd = Source(name="x", content=b'#include "gr\xf6sse.h"', own_headers={"gr\udcf6sse.h": b"int x;\n"})
    assert list(workers.meant_headers(odd)) == ["gr\udcf6sse.h"]
    assert len(workers.source_id(odd)) == 64


def test_when_an_executor_breaks_only_the_guilty_one_is_left_out(store: Store, folder: Path) -> None:
    """Those that were under way with it are graded all the same."""
    run = planned(store, folder)
    graded(store, folder, run, partial(in_process, UNREADABLE.encode()), window=3)
    failures = {one.name: one.entry.failure for one in store.results(run) if not one.is_graded}

    assert list(failures) == ["unreadable"]
    assert "killed" in failures["unreadable"]


def test_a_worker_that_is_killed_takes_nobody_with_it(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real processes: the pool breaks, another one goes on."""
    (folder / "unreadable.sh").write_text("deadly", encoding="utf-8")
    monkeypatch.setattr(batch, "grade", deadly)
    run = planned(store, folder)
    graded(store, folder, run, partial(ProcessPool, 2))

    assert [one.name for one in store.results(run) if not one.is_graded] == ["unreadable"]


def test_a_worker_with_another_grader_refuses(store: Store, folder: Path, c_folder: Path) -> None:
    """On another machine, or when a case was changed meanwhile: the batch ends, nobody has a record or a trouble."""
    source = find_submissions(c_folder, "llm_memory.c", "compile").submissions[0].source
    assert source is not None
    other = Task(
        key="k",
        source=source,
        settings=FEW_IN_C,
        fingerprint="x",
        made_of={**workers.grading_plan(FEW_IN_C).made_of, "gcc": "another"},
    )
    with pytest.raises(OtherGrader, match=r"what the batch began with: gcc 'gcc .*', not 'another'"):
        grade(other)

    run = planned(store, folder)
    with pytest.raises(OtherGrader):
        graded(store, folder, replace(run, fingerprint="another"))
    assert len(store.pending(run)) == 3
    assert {one.entry.failure for one in store.results(run)} == {""}
