"""The benchmark: that its arithmetic is right and that what it measures does the work; never how long that takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.bench import targets
from grader.bench.__main__ import main
from grader.bench.subject import Subject, plain, prepared
from grader.bench.targets import Figure, FigureGroup, Target
from grader.labs import LABS
from grader.system import sandbox
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import ACCEPTED, POSIX, around

_CASES = ("append/first_append_after_fork_copies", "append/record_zero")
"""Both append, and only the first one to sequence 2."""
_SAMPLE = SAMPLES / "accepted" / "visitor_camel_case_allman"


def quiet(_: str) -> None:
    """Tell nobody."""


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    """A right program with two cases."""
    with prepared(_SAMPLE, "paged_kv") as made:
        yield replace(made, cases=tuple(case for case in made.cases if case.name in _CASES))


def other(subject: Subject, folder: Path, source: str) -> Subject:
    """The same with another program."""
    (folder / "llm_memory.c").write_text(source, encoding="utf-8")
    with prepared(folder, "paged_kv") as made:
        return replace(made, cases=subject.cases)


def test_the_yardstick_is_the_handouts_command(subject: Subject) -> None:
    """It finds the header that submissions include."""
    subject.compile_strictly()

    assert (subject.folder / "bench.o").exists()


def test_the_plain_way_says_what_the_sandbox_says(subject: Subject, tmp_path: Path) -> None:
    """The same stage, the same result: what is compared is the wrapping alone."""
    reads = "int *volatile p = malloc(4); if (*p == 12345) abort(); free(p);"
    unset = other(subject, tmp_path, around("append_kv", reads, top=f"{POSIX}#include <stdlib.h>\n"))
    with sandbox.workspace() as work:
        there = unset.memcheck(work, unset.cases)
    here = unset.memcheck(plain(tmp_path, "work"), unset.cases)

    assert there.errors
    assert (here.errors, here.counted, here.stopped) == (there.errors, there.counted, there.stopped)


@pytest.mark.thorough
def test_everything_is_measured(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for every target of grader/README.md, on few cases and few samples."""
    monkeypatch.setattr(Subject, "samples", lambda _, __: ACCEPTED[:1])
    monkeypatch.setattr(targets, "_EXPENSIVE_ROUNDS", 1)
    groups = {group.title: group.figures for group in targets.measure(subject, 1, quiet)}
    limits = {str(figure.target) for figure in groups["Targets"]}

    assert {"<= 4.5", "<= 1.4", ">= 30", "<= 2", "<= 3", "<= 5", "<= 0.1", "<= 250", "<= 200"} <= limits
    assert (">= 0.85" in limits) == (len(os.sched_getaffinity(0)) > 1)
    assert all(figure.target is not None for figure in groups["Targets"])
    assert set(groups) == {
        "Targets",
        "From an edit to the first result",
        "Stages of the whole grading",
        "`grade run` from the shell, by process and stage",
    }
    assert len(groups["From an edit to the first result"]) == len(LABS)
    assert all(figure.value > 0 for figure in groups["Stages of the whole grading"])


@pytest.mark.parametrize("value", [2.0, 4.0])
def test_the_command_says_all_in_its_exit_code(
    value: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 exactly when a target is missed; a line of JSON for each figure."""
    figure = Figure(name="a figure", value=value, low=value, high=value, target=Target(3))
    monkeypatch.setattr(targets, "measure", lambda *_, **__: [FigureGroup("Targets", (figure,))])
    with pytest.raises(SystemExit) as end:
        main(["--quick", "--rounds", "1", "--json", "--submission", str(_SAMPLE)])
    held = value <= 3

    assert json.loads(capsys.readouterr().out) == [{"name": "a figure", "value": value, "target": 3, "held": held}]
    assert end.value.code == (0 if held else 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rounds", "0"],
        ["--submission", "no/such/place"],
        ["--submission", str(SAMPLES / "compile_error" / "sign_compare")],
    ],
)
def test_a_wrong_option_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And says why, before anything is measured."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()

    assert (end.value.code, said.out) == (2, "")
    assert said.err
