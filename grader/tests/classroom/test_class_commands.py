"""The commands for a class, as their users call them: what they say, what they make, and how they end."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from grader.core.record import from_json
from grader.tests.support.command import SAMPLES, Said, copy_of_the_house, grade_process

_QUICK = ("--case", "append/*", "--without-memory-checker", "--jobs", "2")
_ROSTER = "folder,name,sid,email\nyoda_crlf,Yoda,007,yoda@example.edu\nno_copy_on_write,=Luke,2,\ngone,Jar Jar,3,\n"
_DECIDED = """[[override]]
submission = "no_copy_on_write"
rule = "cow"
points = 10
reason = "agreed in the lecture"
by = "the instructor"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A house of its own to change cases in, and a class that was graded there."""
    made = tmp_path_factory.mktemp("class")
    copy_of_the_house(made / "house")
    for name in ("accepted/yoda_crlf", "wrong_answer/no_copy_on_write", "compile_error/sign_compare"):
        shutil.copytree(SAMPLES / name, made / "in" / Path(name).name)
    for name in ("a", "b"):
        shutil.copytree(SAMPLES / "accepted" / "yoda_crlf", made / "in" / "tie" / name)
    (made / "class.csv").write_text(_ROSTER, encoding="utf-8")
    said = call(made, "batch", "in", "--roster", "class.csv", *_QUICK)

    assert said.code == 3
    assert "run 1: 4 submissions, 1 accepted, 2 not, points: mean" in said.out
    assert "tie: in/tie: which one is to be graded?" in said.out
    assert "in the roster, but handed in nothing: 1\n  Jar Jar" in said.out
    assert "4 of 4 done, 2 failing" in said.err
    assert "not in the roster: sign_compare, tie" in said.err
    return made


def call(place: Path, *words: str | Path) -> Said:
    """`grade` of the copied house, in the folder of the class."""
    return grade_process(*words, cwd=place, root=place / "house")


def test_runs_are_listed(place: Path) -> None:
    """With a star at the one that counts."""
    said = call(place, "runs")

    assert said.code == 0
    assert "1*" in said.out
    assert str(place / "in") in said.out.replace("\n", "")


def test_a_report_is_shown_by_name(place: Path) -> None:
    """Of the submission, or of whoever handed it in; another name says which one is close."""
    for name in ("yoda_crlf", "Yoda", "007", "yoda@example.edu"):
        said = call(place, "show", name)
        assert (said.code, said.out.partition(":")[0]) == (0, "yoda_crlf")
    assert "How it was graded" not in call(place, "show", "007").out
    assert "How it was graded" in call(place, "show", "007", "--all").out
    close = {"yoda_crfl": "yoda_crlf", "Yoad": "Yoda", "yoda@example.ed": "yoda@example.edu"}
    unknown = {name: call(place, "show", name) for name in close}
    failed = call(place, "show", "tie")

    assert {said.code for said in unknown.values()} == {2}
    assert [name for name, said in unknown.items() if f"(did you mean {close[name]}?)" not in said.err] == []
    assert (failed.code, "No point is given or taken until a person has looked at it" in failed.out) == (3, True)


def test_an_export_has_a_row_for_each_submission_and_each_student(place: Path) -> None:
    """That of one that cannot be graded has the reason and no points: it is no zero."""
    said = call(place, "export")
    *rows, tie, yoda, missing = csv.DictReader(io.StringIO(said.out))

    assert said.code == 0
    assert "run 1: without a score, because they need a person: 1: tie" in said.err
    assert [row["submission"] for row in rows] == ["no_copy_on_write", "sign_compare"]
    assert [row["verdict"] for row in rows] == ["wrong_answer", "compile_error"]
    assert (yoda["submission"], yoda["verdict"], missing["verdict"]) == ("yoda_crlf", "accepted", "missing")
    assert (rows[0]["name"], yoda["sid"], missing["name"]) == ("'=Luke", "007", "Jar Jar")
    for row in (*rows, yoda):
        rules = list(row)[list(row).index("overrides") + 1 : -1]
        assert sum(int(row[rule]) for rule in rules) == int(row["score"])
        assert row["remark"] == ""
    assert (tie["submission"], tie["verdict"], tie["score"], tie["cow"]) == ("tie", "judge_error", "", "")
    assert tie["remark"].startswith("needs a person: in/tie: which one is to be graded?")


def test_records_and_reports_are_exported(place: Path) -> None:
    """One record a line; a report for each submission in a folder."""
    lines = call(place, "export", "--format", "jsonl").out.splitlines()
    reports = call(place, "export", "--format", "text", "--output", "reports")
    pages = call(place, "export", "--format", "html", "--output", "pages")
    wrong = call(place, "export", "--format", "text")
    names = ["no_copy_on_write", "sign_compare", "tie", "yoda_crlf"]

    assert [from_json(line).submission.name for line in lines] == names
    assert from_json(lines[3]).submission.students[0].name == "Yoda"
    assert (reports.code, pages.code) == (0, 0)
    assert 'href="yoda_crlf.html"' in (place / "pages" / "index.html").read_text(encoding="utf-8")
    assert "<svg" in (place / "pages" / "no_copy_on_write.html").read_text(encoding="utf-8")
    assert sorted(path.stem for path in (place / "reports").iterdir()) == names
    assert (wrong.code, "write --output FOLDER" in wrong.err) == (2, True)


def test_a_regrade_shows_what_one_case_changes_and_no_more(place: Path) -> None:
    """The old run counts until --apply; decisions of people stay, and both are shown."""
    case = place / "house" / "cases" / "paged_kv" / "append" / "copy_takes_all_64_bytes.toml"
    case.write_text(case.read_text(encoding="utf-8").replace("title ", "weight = 30\ntitle ", 1), encoding="utf-8")
    (place / "decided.toml").write_text(_DECIDED, encoding="utf-8")

    beside = call(place, "regrade")
    assert "from run 1 to run 2, 1 submission changes:\nno_copy_on_write: " in beside.out
    assert "    rule  cow: " in beside.out
    assert "run 1 still counts" in beside.err
    difference = call(place, "diff", "1", "2", "--format", "json")
    (change,) = json.loads(difference.out)
    assert (difference.code, change["submission"], list(change["rules"])) == (1, "no_copy_on_write", ["cow"])

    applied = call(place, "regrade", "--apply", "--overrides", "decided.toml")
    assert "run 3 counts now, in the place of run 1" in applied.err
    shown = call(place, "show", "no_copy_on_write")
    assert "cow: 10 points instead of " in shown.out
    assert "decided by the instructor: agreed in the lecture" in shown.out

    case.write_text(case.read_text(encoding="utf-8").replace("weight = 30", "weight = 5"), encoding="utf-8")
    kept = call(place, "regrade", "--apply")
    assert "run 4 counts now" in kept.err
    assert "decided by the instructor" in call(place, "show", "no_copy_on_write").out
    assert "decided by" not in call(place, "show", "no_copy_on_write", "--run", "1").out
    back = call(place, "diff", "4", "1", "--apply")
    assert "run 1 counts now" in back.err
    assert call(place, "diff", "1", "1").code == 0


def test_a_roster_is_kept_until_another_one_replaces_it(place: Path) -> None:
    """The same batch without one knows the names, and so do a regrade and an export of it."""
    shutil.copytree(place / "in", place / "again", ignore=shutil.ignore_patterns("tie"))
    (place / "other.csv").write_text("folder,name\nyoda_crlf,Grogu\n", encoding="utf-8")
    store = ("--store", "again.sqlite")

    call(place, "batch", "again", "--roster", "class.csv", *_QUICK, *store)
    same = call(place, "batch", "again", *_QUICK, *store)
    assert "run 1: 3 submissions, 3 of them graded already" in same.err
    assert "the roster of run 1 stays" in same.err
    shutil.copytree(SAMPLES / "accepted" / "terse_no_final_newline", place / "again" / "gone")
    later = call(place, "batch", "again", *_QUICK, *store)
    assert "run 2: 4 submissions, 3 of them graded already" in later.err
    assert "in the roster" not in later.out
    assert call(place, "show", "Jar Jar", *store).out.startswith("gone: accepted")

    replaced = call(place, "regrade", "--roster", "other.csv", "--apply", *store)
    assert "run 3: 4 submissions, 4 of them graded already" in replaced.err
    rows = csv.DictReader(io.StringIO(call(place, "export", *store).out))
    assert {row["name"] for row in rows} == {"", "Grogu"}
    assert "the roster of run 3 stays" in call(place, "batch", "again", *_QUICK, *store).err


def test_wrong_words_say_what_to_write(place: Path) -> None:
    """Nothing is graded, and nothing is made."""
    for words, said in (
        (("batch", "none"), "there is no such folder"),
        (("batch", "in", "--jobs", "0"), "from 1 to 64"),
        (("batch", "in", "--roster", "none.csv"), "none.csv:1: cannot be read"),
        (("batch", "in", "--case", "nothing/*"), "no case fits"),
        (("show", "yoda_crlf", "--store", "none.sqlite"), "there is no such store"),
        (("show", "yoda_crlf", "--format", "pdf"), "there is no format 'pdf'"),
        (("export", "--format", "pdf"), "there is no format 'pdf'; there are csv, "),
        (("export", "99"), "there is no run 99"),
        (("diff", "1", "99"), "there is no run 99"),
        (("diff", "1"), "grade diff -h"),
    ):
        done = call(place, *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err, words
    assert not (place / "none.sqlite").exists()


@pytest.mark.parametrize("name", ["batch", "runs", "show", "export", "regrade", "diff"])
def test_every_command_has_help_with_examples(place: Path, name: str) -> None:
    """What it does, and how to write it."""
    said = call(place, name, "--help")

    assert said.code == 0
    assert f"Examples:\n     grade {name}" in said.out
