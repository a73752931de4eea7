"""The commands for a class, as their users call them: what they say, what they make, and how they end."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.classroom.workers import grading_plan
from grader.core.record import from_json
from grader.tests.support.command import Said, grade
from grader.tests.support.counter.lab import lab
from grader.tests.support.counter_house import RIGHT
from grader.tests.support.counter_lab import UNREADABLE, counters_in_process
from grader.tests.support.odd_classes import NAME, put

_QUICK = ("--lab", "counter", "--jobs", "2")
_CLASS = {
    "yoda_tabs": RIGHT.replace("start", "\tstart"),
    "stops_early": RIGHT.replace('add "$one"; done', 'add "$one"; break; done'),
    "syntax": UNREADABLE,
    "tie/a": RIGHT,
    "tie/b": RIGHT,
}
_ROSTER = "folder,name,sid,email\nyoda_tabs,Yoda,007,yoda@example.edu\nstops_early,=Luke,2,\ngone,Jar Jar,3,\n"
_DECIDED = """[[override]]
submission = "stops_early"
rule = "counts"
points = 50
reason = "agreed in the lecture"
by = "the instructor"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Cases that can be changed, and a class that was graded with them."""
    made = tmp_path_factory.mktemp("class")
    shutil.copytree(lab().cases, made / "cases")
    for name, source in _CLASS.items():
        put(made / "in" / name / NAME, source.encode())
    (made / "class.csv").write_text(_ROSTER, encoding="utf-8")
    with counters_in_process(cases=made / "cases"):
        said = call(made, "batch", "in", "--roster", "class.csv", *_QUICK)

        assert said.code == 3
        assert "run 1: 4 submissions, 1 accepted, 2 not, points: mean" in said.out
        assert "tie: in/tie: several files can be graded:" in said.out
        assert "in the roster, but submitted nothing: 1\n  Jar Jar" in said.out
        assert "4 of 4 done, 2 failing" in said.err
        assert "not in the roster: syntax, tie" in said.err
        yield made


def call(place: Path, *words: str | Path) -> Said:
    """`grade` in the folder of the class."""
    return grade(*words, cwd=place)


def test_a_report_is_shown_by_name(place: Path) -> None:
    """Of the submission, or of whoever handed it in; another name says which one is close."""
    for name in ("yoda_tabs", "Yoda", "007", "yoda@example.edu"):
        said = call(place, "show", name)
        assert (said.code, said.out.partition(":")[0]) == (0, "yoda_tabs")
    assert "How it was graded" not in call(place, "show", "007").out
    assert "How it was graded" in call(place, "show", "007", "--all").out
    close = {"yoda_tbas": "yoda_tabs", "Yoad": "Yoda", "yoda@example.ed": "yoda@example.edu"}
    unknown = {name: call(place, "show", name) for name in close}
    failed = call(place, "show", "tie")

    assert {said.code for said in unknown.values()} == {2}
    assert [name for name, said in unknown.items() if f"(did you mean {close[name]}?)" not in said.err] == []
    assert (failed.code, "No point is given or taken until a person has looked at it" in failed.out) == (3, True)


def test_records_and_reports_are_exported(place: Path) -> None:
    """One record a line; a report for each submission in a folder."""
    lines = call(place, "export", "--format", "jsonl").out.splitlines()
    reports = call(place, "export", "--format", "text", "--output", "reports")
    pages = call(place, "export", "--format", "html", "--output", "pages")
    wrong = call(place, "export", "--format", "text")
    names = ["stops_early", "syntax", "tie", "yoda_tabs"]

    assert [from_json(line).submission.name for line in lines] == names
    assert from_json(lines[3]).submission.students[0].name == "Yoda"
    assert (reports.code, pages.code) == (0, 0)
    class_page = (place / "pages" / "class" / "index.html").read_text(encoding="utf-8")
    assert 'href="../students/yoda_tabs.html"' in class_page
    assert "<svg" in (place / "pages" / "students" / "stops_early.html").read_text(encoding="utf-8")
    assert sorted(path.stem for path in (place / "reports").iterdir()) == names
    assert (wrong.code, "write --output FOLDER" in wrong.err) == (2, True)


def test_only_the_page_of_the_class_has_names_of_several_students(place: Path) -> None:
    """A student's page has its own name at most, whoever reads it; so the folder of these pages can be handed on."""
    for reader in ((), ("--instructor",)):
        folder = place / f"names{len(reader)}"
        assert call(place, "export", "--format", "html", "--output", folder.name, *reader).code == 0
        pages = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "students").iterdir()}
        class_page = (folder / "class" / "index.html").read_text(encoding="utf-8")
        own = {
            "yoda_tabs": ["yoda_tabs", "Yoda", "yoda@example.edu"],
            "stops_early": ["stops_early", "=Luke"],
            "syntax": ["syntax.html"],
            "tie": ["tie.html"],
        }

        assert pages.keys() == own.keys()
        assert sorted(path.name for path in folder.rglob("*.html") if "students" not in path.parts) == ["index.html"]
        assert all(names[0] in class_page for names in own.values())
        for student, page in pages.items():
            others = [name for other, names in own.items() if other != student for name in names]
            assert [name for name in [*others, "Jar Jar"] if name in page] == [], student


def changed(case: Path, old: str, new: str) -> None:
    """Write something else there; a command that starts later reads it."""
    case.write_text(case.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    grading_plan.cache_clear()


def test_a_regrade_shows_what_one_case_changes_and_no_more(place: Path) -> None:
    """The old run counts until --apply; decisions of people stay, and both are shown."""
    case = place / "cases" / "basic" / "adds_all.toml"
    changed(case, "title ", "weight = 30\ntitle ")
    (place / "decided.toml").write_text(_DECIDED, encoding="utf-8")

    beside = call(place, "regrade")
    assert "from run 1 to run 2, 1 submission changes:\nstops_early: " in beside.out
    assert "    rule  counts: " in beside.out
    assert "run 1 still counts" in beside.err
    difference = call(place, "diff", "1", "2", "--format", "json")
    (change,) = json.loads(difference.out)
    assert (difference.code, change["submission"], list(change["rules"])) == (1, "stops_early", ["counts"])

    applied = call(place, "regrade", "--apply", "--overrides", "decided.toml")
    assert "run 3 counts now, instead of run 1" in applied.err
    shown = call(place, "show", "stops_early")
    assert "counts: 50 points instead of " in shown.out
    assert "decided by the instructor: agreed in the lecture" in shown.out

    changed(case, "weight = 30", "weight = 5")
    kept = call(place, "regrade", "--apply")
    assert "run 4 counts now" in kept.err
    assert "decided by the instructor" in call(place, "show", "stops_early").out
    assert "decided by" not in call(place, "show", "stops_early", "--run", "1").out
    back = call(place, "diff", "4", "1", "--apply")
    assert "run 1 counts now" in back.err
    same = call(place, "regrade", "4", "--apply")
    assert "has changed since run 4" in same.err
    assert "run 4 counts now, instead of run 1" in same.err
    assert call(place, "diff", "1", "1").code == 0


def test_a_roster_is_kept_until_another_one_replaces_it(place: Path) -> None:
    """The same batch without one knows the names, and so do a regrade and an export of it."""
    shutil.copytree(place / "in", place / "again", ignore=shutil.ignore_patterns("tie"))
    (place / "other.csv").write_text("folder,name\nyoda_tabs,Grogu\n", encoding="utf-8")
    store = ("--store", "again.sqlite")

    call(place, "batch", "again", "--roster", "class.csv", *_QUICK, *store)
    same = call(place, "batch", "again", *_QUICK, *store)
    assert "run 1: 3 submissions, 3 of them graded already" in same.err
    assert "the roster of run 1 stays" in same.err
    put(place / "again" / "gone" / NAME, RIGHT.rstrip().encode())
    later = call(place, "batch", "again", *_QUICK, *store)
    assert "run 2: 4 submissions, 3 of them graded already" in later.err
    assert "in the roster" not in later.out
    assert call(place, "show", "Jar Jar", *store).out.startswith("gone: accepted")

    replaced = call(place, "regrade", "--roster", "other.csv", "--apply", *store)
    assert "run 3: 4 submissions, 4 of them graded already" in replaced.err
    rows = csv.DictReader(io.StringIO(call(place, "export", *store).out))
    assert {row["name"] for row in rows} == {"", "Grogu"}
    assert "the roster of run 3 stays" in call(place, "batch", "again", *_QUICK, *store).err


def test_who_hands_in_nothing_newer_keeps_the_result(place: Path) -> None:
    """In every table, with the run that it is from, and in uploads; until there is something newer."""
    (place / "later").mkdir()
    (place / "later" / "class.csv").write_text("folder,name,sid\nann,Ann,1\nbob,Bob,2\ncem,Cem,3\n", encoding="utf-8")
    put(place / "later" / "in" / "ann" / NAME, RIGHT.encode())
    put(place / "later" / "in" / "bob" / NAME, RIGHT.encode())
    call(place / "later", "batch", "in", "--roster", "class.csv", *_QUICK)
    shutil.rmtree(place / "later" / "in" / "bob")
    second = call(place / "later", "batch", "in", *_QUICK)
    remark = "kept from run 1: nothing newer was handed in"

    def exported(name: str, column: str) -> dict[str, dict[str, str]]:
        lines = call(place / "later", "export", "--format", name).out.splitlines()
        return {row[column]: row for row in csv.DictReader(lines)}

    assert "bob        │ Bob     │ accepted │ 100 (run 1) │" in second.out
    assert "kept, because nothing newer was handed in: 1\n  bob: from run 1\n" in second.out
    assert second.out.endswith("in the roster, but submitted nothing: 1\n  Cem\n")
    own, scope = exported("csv", "name"), exported("gradescope-csv", "SID")
    assert [(own[name]["score"], own[name]["remark"]) for name in ("Ann", "Bob")] == [("100", ""), ("100", remark)]
    assert [(scope[sid]["Total Score"], scope[sid]["Remarks"]) for sid in ("1", "2")] == [("100", ""), ("100", remark)]
    assert exported("canvas-csv", "Student")["Bob"] == {
        "Student": "Bob", "ID": "", "SIS User ID": "2", "SIS Login ID": "", "Section": "", "counter": "100",
    }  # fmt: skip
    records = map(from_json, call(place / "later", "export", "--format", "jsonl").out.splitlines())
    assert {record.submission.name: record.submission.kept_from for record in records} == {"ann": None, "bob": 1}
    assert call(place / "later", "export", "--format", "html", "--output", "pages").code == 0
    assert remark in (place / "later" / "pages" / "class" / "index.html").read_text(encoding="utf-8")
    assert f"bob: {remark}" in call(place / "later", "show", "Bob").err

    assert "run 2: 2 submissions, 2 of them graded already" in call(place / "later", "batch", "in", *_QUICK).err
    assert "nothing that the results depend on has changed since run 2" in call(place / "later", "regrade").err
    put(place / "later" / "in" / "bob" / NAME, UNREADABLE.encode())
    assert "kept" not in call(place / "later", "batch", "in", *_QUICK).out
    assert exported("csv", "name")["Bob"]["score"] == "0"


def test_who_is_in_no_roster_keeps_the_result_too(place: Path) -> None:
    """And what people decided; but a file that nobody could read and that is nobody's is gone when it is gone."""
    (place / "unknown").mkdir()
    for name in ("ann", "bob"):
        put(place / "unknown" / "in" / name / NAME, RIGHT.encode())
    put(place / "unknown" / "in" / "all.zip", b"no zip")
    call(place / "unknown", "batch", "in", *_QUICK)
    shutil.rmtree(place / "unknown" / "in" / "bob")
    (place / "unknown" / "in" / "all.zip").unlink()
    (place / "unknown" / "decided.toml").write_text(_DECIDED.replace("stops_early", "bob"), encoding="utf-8")
    later = call(place / "unknown", "batch", "in", "--overrides", "decided.toml", *_QUICK)
    rows = csv.DictReader(io.StringIO(call(place / "unknown", "export").out))

    assert "all" not in later.out
    assert [(row["submission"], row["overrides"][:6], row["remark"][:15]) for row in rows] == [
        ("ann", "", ""),
        ("bob", "counts", "kept from run 1"),
    ]


def test_wrong_words_say_what_to_write(place: Path) -> None:
    """Nothing is graded, and nothing is made."""
    for words, said in (
        (("batch", "none"), "there is no such folder"),
        (("batch", "in", "--jobs", "0"), "from 1 to 64"),
        (("batch", "in", "--lab", "counter", "--roster", "none.csv"), "none.csv:1: cannot be read"),
        (("batch", "in", "--lab", "counter", "--case", "nothing/*"), "no case matches"),
        (("show", "yoda_tabs", "--store", "none.sqlite"), "there is no such store"),
        (("show", "yoda_tabs", "--format", "pdf"), "there is no format 'pdf'"),
        (("export", "--format", "pdf"), "there is no format 'pdf'; there are csv, "),
        (("export", "99"), "there is no run 99"),
        (("diff", "1", "99"), "there is no run 99"),
        (("diff", "1"), "grade diff -h"),
    ):
        done = call(place, *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err, words
    assert not (place / "none.sqlite").exists()


@pytest.mark.parametrize("name", ["batch", "runs", "show", "export", "regrade", "diff", "compare"])
def test_every_command_has_help_with_examples(place: Path, name: str) -> None:
    """What it does, and how to write it."""
    said = call(place, name, "--help")

    assert said.code == 0
    assert f"Examples:\n     grade {name}" in said.out
