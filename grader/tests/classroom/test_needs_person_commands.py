"""The commands for a class say which submissions need a person, and no table or report takes them for a zero."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from grader.core.case import Case
from grader.core.errors import OptionalStages
from grader.core.record import from_json
from grader.runtime.protocol import Program, Replayed
from grader.system.sandbox import Workspace
from grader.tests.support.command import Said, grade
from grader.tests.support.counter.runtime import ShellRuntime
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.pretended import tries

_BROKE = "its grading broke twice: "


class BreaksOnDemand(ShellRuntime):
    """Breaks when the source says so: always, or the first time."""

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Play the cases, or raise."""
        found = re.search(rb"^# (always|once) (.+)$", program.content, re.MULTILINE)
        if found is not None:
            log = Path(found[2].decode())
            log.write_text("x" * (1 + tries(log)))
            if found[1] == b"always" or tries(log) == 1:
                raise RuntimeError("the instrument broke")
        return super().play(work, program, cases, optional=optional)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A class that was graded by a grader that breaks at two of its submissions, and cannot read a third."""
    made = tmp_path_factory.mktemp("broken")
    sources = {
        "ada": RIGHT,
        "bob": BELOW,
        "eve": f"# always {made / 'eve'}{RIGHT}",
        "fay": f"# once {made / 'fay'}{RIGHT}",
    }
    for name, source in sources.items():
        (made / "in" / name).mkdir(parents=True)
        (made / "in" / name / "counter.sh").write_text(source, encoding="utf-8")
    (made / "in" / "zoe.zip").write_bytes(b"no zip")
    people = "".join(f"{name},{name.title()}\n" for name in (*sources, "zoe", "gus"))
    (made / "class.csv").write_text(f"folder,name\n{people}", encoding="utf-8")
    with counters_in_process(runtime=BreaksOnDemand()):
        said = call(made, "batch", "in", "--lab", "counter", "--roster", "class.csv", "--jobs", "2")
        _check_batch(made, said)
        yield made


def _check_batch(made: Path, said: Said) -> None:
    assert said.code == 3
    assert "no score until a person has looked at it: 2\n  eve: its" in said.out
    assert "the instrument broke (the same command tries it once more)\n" in said.out
    assert "no score yet" not in said.out
    assert "in: 5 entries: 4 to be graded, 1 that need a person\n" in said.err
    assert "5 of 5 done, 1 failing, 1 without a score" in said.err
    assert (tries(made / "eve"), tries(made / "fay")) == (2, 2)


def call(place: Path, *words: str | Path) -> Said:
    """`grade` in the folder of the class."""
    return grade(*words, cwd=place)


def test_an_export_has_a_row_that_is_no_zero(place: Path) -> None:
    """Without --partial; who needs a person is said too. Canvas would take an empty cell for a deleted grade."""
    said = call(place, "export")
    rows = {row["submission"]: row for row in csv.DictReader(io.StringIO(said.out))}
    scope = call(place, "export", "--format", "gradescope-csv")
    graded = {row["Submission ID"]: row for row in csv.DictReader(io.StringIO(scope.out))}
    canvas = call(place, "export", "--format", "canvas-csv")
    lines = call(place, "export", "--format", "jsonl")
    records = {record.submission.name: record for record in map(from_json, lines.out.splitlines())}

    assert {one.code for one in (said, scope, canvas, lines)} == {0}
    for one in (said, scope, canvas, lines):
        assert "run 1: without a score, because they need a person: 2: eve, zoe\n" in one.err
    assert {name: row["score"] for name, row in rows.items()} == {
        "ada": "100", "bob": "60", "eve": "", "fay": "100", "zoe": "", "": "",
    }  # fmt: skip
    assert {rows[name]["verdict"] for name in ("eve", "zoe")} == {"judge_error"}
    assert rows["eve"]["remark"] == f"needs a person: {_BROKE}RuntimeError: the instrument broke"
    assert rows["zoe"]["remark"].startswith("needs a person: in/zoe.zip: the zip is broken")
    assert (rows[""]["verdict"], rows["ada"]["remark"]) == ("missing", "")
    assert (graded["eve"]["Total Score"], graded["eve"]["Status"], graded["eve"]["Remarks"]) == (
        "", "Ungraded", rows["eve"]["remark"],
    )  # fmt: skip
    assert [line.split(",")[0] for line in canvas.out.splitlines()[2:]] == ['"Ada"', '"Bob"', '"Fay"']
    assert {name: record.score for name, record in records.items()} == {
        "ada": 100, "bob": 60, "eve": None, "fay": 100, "zoe": None,
    }  # fmt: skip


def test_runs_and_the_same_command_say_it_too(place: Path) -> None:
    """Two need a person, one of these is tried once more, and the exit code is the same."""
    runs = " ".join(call(place, "runs").out.split())
    before = tries(place / "eve")
    again = call(place, "batch", "in", "--lab", "counter")

    assert "need a person" in runs
    assert "│ 5 │ 2 │ 1 │ 2 │ 0 │ 86.7 │" in runs
    assert (again.code, tries(place / "eve")) == (3, before + 1)
    assert "no score until a person has looked at it: 2\n  eve: its" in again.out
