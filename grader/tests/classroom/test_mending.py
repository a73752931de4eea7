"""`grade mend`: how far a submission is from right, for one program and for a class; never for students."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from grader.assignment.samples import program_of
from grader.bundles import public_tree
from grader.classroom import mending as module
from grader.classroom.mending import Mending
from grader.core.errors import ExitCode
from grader.labs import open_lab
from grader.tests.support.command import ROOT, grade
from grader.tests.support.odd_classes import put

_SAMPLES = ROOT / "submissions"


@pytest.mark.parametrize(
    ("sample", "line", "repaired"),
    [
        ("paged_kv/wrong_answer/create_refuses_the_full_256_blocks", 161, "need > MAX_LOGICAL_BLOCKS"),
        ("scheduler/wrong_answer/keys_only", 184, "2 * block_size * num_kv_heads * head_size * itemsize"),
    ],
)
def test_one_change_makes_it_right(sample: str, line: int, repaired: str) -> None:
    """Every case passes with it, and a search finds nothing; the diff has one line less and one more."""
    done = grade("mend", str(_SAMPLES / sample), "--seconds", "120", "--format", "json")
    mending = json.loads(done.out)
    changed = [text for text in mending["diff"] if text[:1] in "+-" and text[:3] not in ("+++", "---")]

    assert done.code == ExitCode.ACCEPTED
    assert mending["before"] < mending["after"] == mending["most"] == 100
    assert (mending["distance"], mending["lines"]) == (1, [line])
    assert [text[0] for text in changed] == ["-", "+"]
    assert repaired in changed[1]
    assert mending["clause"]


@pytest.mark.parametrize(
    ("sample", "code", "told"),
    [
        ("scheduler/accepted/plain", ExitCode.ACCEPTED, "it has all points"),
        ("paged_kv/compile_error/sign_compare_in_a_loop", ExitCode.NOT_ACCEPTED, "it cannot be built"),
        ("block_pool/wrong_answer/plausible_empty_values", ExitCode.NOT_ACCEPTED, "not written yet"),
    ],
)
def test_where_there_is_nothing_to_mend_nothing_is_tried(sample: str, code: ExitCode, told: str) -> None:
    """A right program, one that is not built, and one with parts missing: it is said why, and no patchwork is shown."""
    done = grade("mend", str(_SAMPLES / sample))

    assert done.code == code
    assert told in " ".join(done.out.split())
    assert "@@" not in done.out


def test_of_changes_that_do_not_suffice_the_best_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that say that it does not suffice."""
    found = Mending(before=70, after=90, diff=("--- a", "+++ a, mended", "-old", "+new"), lines=(3,), tried=960)
    monkeypatch.setattr(module, "mended", lambda *_, **__: found)
    done = grade("mend", str(_SAMPLES / "scheduler/wrong_answer/keys_only"))

    assert done.code == ExitCode.NOT_ACCEPTED
    assert "No small change makes it right (960 tried); the best of them wins 20 points:" in done.out
    assert "+new" in done.out


def test_a_class_is_mended_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the distance of each; what is known is not searched again, and `grade show` has it too."""
    for name, sample in (("ada", "wrong_answer/keys_only"), ("bob", "accepted/plain")):
        put(tmp_path / "in" / name / "scheduler.py", program_of(_SAMPLES / "scheduler" / sample, "scheduler.py"))
    store = str(tmp_path / "grades.sqlite")
    grade("batch", str(tmp_path / "in"), "--store", store)
    calls = []

    def mended(*_: object, **__: object) -> Mending:
        calls.append(1)
        return Mending(before=97, after=100, distance=1, diff=("-old", "+new"), lines=(1,), tried=96)

    monkeypatch.setattr(module, "mended", mended)
    rows = list(csv.DictReader(grade("export", "--store", store, "--mend").out.splitlines()))
    again = grade("show", "ada", "--store", store, "--mend")
    pages = grade("export", "--store", store, "--format", "html", "--mend", "--output", tmp_path / "pages")

    assert {row["submission"]: row["distance"] for row in rows} == {"ada": "1", "bob": "1"}
    assert len(calls) == 2
    assert pages.code == ExitCode.ACCEPTED, pages.err
    page = (tmp_path / "pages/class/index.html").read_text("utf-8")
    assert "2 of 2 failing submissions are one change from right" in page
    assert (
        "--mend works with --format csv and html only"
        in grade("export", "--store", store, "--mend", "--format", "jsonl").err
    )
    assert "One change makes it right: 97 points without, 100 with it." in again.out
    assert "distance" not in grade("export", "--store", store).out
    assert (
        "--mend works with --format text only"
        in grade("show", "ada", "--store", store, "--mend", "--format", "json").err
    )


def test_students_do_not_get_it() -> None:
    """Their bundle lacks the search and so the command, which its help does not name."""
    lab = open_lab("scheduler")
    names = {Path(file.name).name for file in public_tree(lab, [])}

    assert names.isdisjoint({"mending.py", "repairs.py"})
    assert {"hunt.py", "mutants.py", "app.py"} <= names
