"""What a batch tells while it runs."""

from __future__ import annotations

import re
import time

import pytest

from grader.classroom.workers import Graded
from grader.cli.terminal import Progress, progress
from grader.tests.classroom.test_store import kept


def test_all_that_is_counted_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Done, failing, without a score, rate, time left; what was there before does not make it look quick."""
    with progress(1000, done=900, failing=5) as tell:
        tell.started -= 10
        tell(Graded(key="a", stored=kept("a")), 1)
        tell(Graded(key="b", failure="no time"), 3)
        assert capsys.readouterr().err == ""
        tell.last_report -= 60
        tell(Graded(key="c", stored=kept("c")), 1)
        line = capsys.readouterr().err

    told = r"905 of 1000 done, 7 failing, 3 without a score, 0\.\d a second, \d:\d\d min left\n"
    assert re.fullmatch(told, line)
    assert re.fullmatch(told, capsys.readouterr().err)


def test_where_all_is_done_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """All of it came from the store."""
    with progress(5, done=5, failing=1):
        pass

    assert capsys.readouterr().err == ""


def test_long_times_are_told_in_hours() -> None:
    """Nobody counts 9000 seconds."""
    slow = Progress(total=1000, done=100, failing=0, graded=100, started=time.monotonic() - 1000)

    assert slow.rest().endswith("0.1 a second, 2:30 h left")
