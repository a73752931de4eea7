"""`grade doctor`: what is installed, what protects, and whether all of it grades."""

from __future__ import annotations

from typing import NoReturn

import pytest

from grader import pipeline
from grader.cli.install import doctor
from grader.core.errors import DriverError, ExitCode
from grader.tests.support.command import grade


def test_doctor_says_what_is_installed() -> None:
    """Tools with versions, what protects this machine, and that a whole grading came to its end."""
    said = grade("doctor")

    assert said.code == 0
    assert all(word in said.out for word in ("gcc", "objcopy", "addr2line", "valgrind-3", "protection: "))
    assert "install what is missing" not in said.out
    assert "a whole grading of paged_kv: works" in said.out
    assert "pace: this machine is " in said.out


def test_doctor_tries_a_whole_grading(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Tools that are there may not work; what hinders them is said."""

    def broken(*_: object, **__: object) -> NoReturn:
        raise DriverError("our own driver does not compile")

    monkeypatch.setattr(pipeline, "grade", broken)

    assert doctor() is ExitCode.JUDGE_ERROR
    said = " ".join(capsys.readouterr().out.split())
    assert "a whole grading of paged_kv: does not work: our own driver does not compile" in said
