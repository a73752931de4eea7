"""Writing a record: in one step, readable for others, and the same file whoever writes at the same time."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.errors import UsageError
from grader.core.losses import with_costs
from grader.core.record import Environment, Protection, Record, UsedTool, from_json, to_json, write
from grader.core.verdict import Audience, Finding, SourceLine, Tool, Verdict, Visibility
from grader.tests.support.handmade import outcome, record_of, secret_record
from grader.tests.support.same_result import same_result


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


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o000, 0o666)])
def test_a_file_has_the_rights_that_any_file_would_have(tmp_path: Path, mask: int, mode: int) -> None:
    """Not those of a temporary file, which only its owner may read."""
    before = os.umask(mask)
    try:
        write(tmp_path / "record.json", "{}")
    finally:
        os.umask(before)

    assert (tmp_path / "record.json").stat().st_mode & 0o777 == mode


def test_an_old_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """Shorter over longer: no tail of the old text remains."""
    path = tmp_path / "record.json"
    for size in (5000, 0, 10):
        write(path, to_json(of_size(size)))

    assert len(from_json(path.read_bytes()).allowed) == 10
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """And makes no folder."""
    with pytest.raises(UsageError, match=r"record\.json cannot be written: No such file.*; write another path"):
        write(tmp_path / "missing" / "record.json", "{}")

    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_seconds": {"build": 9.0}},
        {"environment": Environment(tools=(UsedTool(tool=Tool.BUILD, name="gcc", version="another"),))},
        {"protection": Protection(level="more")},
    ],
)
def test_machine_and_time_are_no_part_of_a_result(change: dict[str, object]) -> None:
    """Two records that differ only there say the same."""
    one = secret_record(outcome("append/x"))

    assert same_result(one, replace(one, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"score": 2},
        {"verdict": Verdict.MEMORY_LEAK},
        {"complete": False},
        {"seed": 7},
        {"unchecked": "memory"},
        {"output": "x"},
        {"findings": ()},
        {"outcomes": ()},
        {"would_score": 4},
        {"failed_stages": ()},
    ],
)
def test_everything_else_is(change: dict[str, object]) -> None:
    """Points, verdict, cases, findings, and under which conditions they were found."""
    one = secret_record(outcome("append/x"))

    assert not same_result(one, replace(one, **change))  # type: ignore[arg-type]


def test_where_a_hanging_call_was_caught_is_chance() -> None:
    """Two records that differ in that only say the same; one that crashes at another line does not."""

    def caught(line: int, verdict: Verdict) -> Record:
        place = SourceLine(file="llm_memory.c", line=line, function="free_sequence")
        finding = Finding(
            rule="list", verdict=verdict, message="seen", case="append/x", source=(place,), hint=f"at {place}"
        )
        return record_of(outcome("append/x", findings=(0,)), findings=(finding,))

    for verdict, same in ((Verdict.TIME_LIMIT_EXCEEDED, True), (Verdict.RUN_TIME_ERROR, False)):
        assert same_result(caught(1, verdict), caught(2, verdict)) is same
    assert not same_result(caught(1, Verdict.TIME_LIMIT_EXCEEDED), caught(1, Verdict.RUN_TIME_ERROR))


def test_a_student_reads_the_causes_in_the_order_of_what_public_cases_cost() -> None:
    """Hidden cases are left out, and so is a cause of hidden cases only; the most likely cause stays first."""
    first, cheap = outcome("append/first"), outcome("append/cheap", weight=2)
    dear, hidden = outcome("append/dear", weight=3), outcome("append/hidden", weight=9, visibility=Visibility.HIDDEN)
    record = record_of(first, cheap, dear, hidden, one_cause=False)
    by_case = {cause.cases[0]: cause for cause in record.causes}
    both = replace(by_case["append/cheap"], cases=("append/cheap", "append/hidden"))
    whole = with_costs(replace(record, causes=(by_case["append/first"], by_case["append/dear"], both)))
    order = {reader: [cause.cases for cause in whole.causes_for(reader)] for reader in Audience}

    assert order[Audience.INSTRUCTOR] == [("append/first",), ("append/cheap", "append/hidden"), ("append/dear",)]
    assert order[Audience.STUDENT] == [("append/first",), ("append/dear",), ("append/cheap",)]


def test_a_cause_that_speaks_of_a_hidden_case_is_not_for_students() -> None:
    """Whatever other cases it has: its sentence, hint and lines are those of the hidden one."""
    record = secret_record(outcome("append/public"))
    mixed = replace(record.causes[0], cases=("append/secret_name", "append/public"))
    record = replace(record, causes=(mixed,))

    assert [cause.cases for cause in record.causes_for(Audience.INSTRUCTOR)] == [mixed.cases]
    assert record.causes_for(Audience.STUDENT) == []
