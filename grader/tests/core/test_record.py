"""Writing a record: in one step, readable for others, and the same file whoever writes at the same time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.record import Record, from_json, to_json, write
from grader.core.verdict import Audience
from grader.tests.support.handmade import outcome, record_of, secret_record


def of_size(steps: int) -> Record:
    """A record that is longer the more it holds."""
    return replace(record_of(outcome("append/x")), allowed=("x",) * steps)


def test_nobody_sees_half_a_file(tmp_path: Path) -> None:
    """A reader that looks all the time while records of different sizes are written finds a whole one each time."""
    path = tmp_path / "record.json"
    write(path, to_json(of_size(0)))
    done = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        while not done.is_set():
            seen.add(len(from_json(path.read_bytes()).allowed))

    reader = threading.Thread(target=look)
    reader.start()
    for size in range(0, 60_000, 600):
        write(path, to_json(of_size(size)))
    done.set()
    reader.join()

    assert seen <= set(range(0, 60_000, 600))
    assert len(seen) > 1


def test_an_interrupt_in_the_middle_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is no exception of the usual kind; it must not leave a temporary file either."""
    path = tmp_path / "record.json"
    write(path, "old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, "new")

    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_cause_that_speaks_of_a_hidden_case_is_not_for_students() -> None:
    """Whatever other cases it has: its sentence, hint and lines are those of the hidden one."""
    record = secret_record(outcome("append/public"))
    mixed = replace(record.causes[0], cases=("append/secret_name", "append/public"))
    record = replace(record, causes=(mixed,))

    assert [cause.cases for cause in record.causes_for(Audience.INSTRUCTOR)] == [mixed.cases]
    assert record.causes_for(Audience.STUDENT) == []
