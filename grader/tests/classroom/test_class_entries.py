"""Every entry of a class ends as a row or as a line that says why it is none, and no entry hides another one."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.classroom.discover import HIDDEN, Discovered, find_submissions
from grader.classroom.roster import Roster
from grader.core.record import Student
from grader.tests.support.command import Said, grade
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.odd_classes import LONG, NAME, odd_folder, odd_zip, put
from grader.tests.support.packing import packed

GOOD, OTHER = RIGHT.encode(), BELOW.encode()


@pytest.fixture(autouse=True)
def counter() -> Iterator[None]:
    """Classes are graded with the counter."""
    with counters_in_process():
        yield


def discovered(folder: Path, roster: Roster | None = None) -> Discovered:
    """What there is in a class."""
    return find_submissions(folder, NAME, "starts", roster)


def rows(said: Said) -> dict[str, dict[str, str]]:
    """The rows of an exported table, by submission."""
    table = list(csv.DictReader(io.StringIO(said.out)))
    found = {row["submission"]: row for row in table}

    assert len(found) == len(table)
    return found


def told(batch: Said) -> tuple[int, int, int, int, list[str]]:
    """The sum that a batch prints: entries, to be graded, for a person, no submissions; and the names of the last."""
    sums = re.search(
        r"^\S+: (\d+) entr(?:y|ies): (\d+) to be graded(?:, (\d+) that need a person)?"
        r"(?:, (\d+) that are not submissions)?\n((?:  .+\n)*)",
        batch.err,
        re.MULTILINE,
    )
    assert sums is not None, batch.err
    names = [name for line in sums[5].splitlines() for name in line.rpartition(": ")[2].split(", ")]
    entries, graded, people, skipped = (int(one or 0) for one in sums.groups()[:4])
    return entries, graded, people, skipped, names


def test_each_of_fifty_odd_entries_is_a_row_or_a_reason(tmp_path: Path) -> None:
    """The sum that is printed is the number of entries, and that of rows and reasons."""
    folder = tmp_path / "in"
    none = odd_folder(folder)
    batch = grade("batch", "in", "--lab", "counter", cwd=tmp_path)
    entries, graded, people, skipped, names = told(batch)
    exported = grade("export", cwd=tmp_path)
    found = rows(exported)
    without = {name for name, row in found.items() if row["remark"].startswith("needs a person: ")}

    assert (batch.code, exported.code) == (3, 0), batch.err + exported.err
    assert entries == len(list(folder.iterdir())) >= 45
    assert (graded + people, skipped) == (len(found), none)
    assert len(names) == skipped
    assert entries == len(found) + len(names)
    assert len(without) == people
    assert {row["score"] for name, row in found.items() if name in without} == {""}
    assert {name for name, row in found.items() if not row["score"]} == without
    assert without >= {"tie", "no bytes", "cut", "secret", "climbs", "linked.zip", "deep", "many", "large"}
    assert without >= {"gone", "loop", "linked", "linked zip", "link inside", "pipe"}
    assert f"no score until a person has looked at it: {people}\n" in batch.out
    zeros = {name for name, row in found.items() if row["score"] == "0"}
    assert zeros == {"empty", "notes only", "nothing"}
    scores = {name: found[name]["score"] for name in ("ann", "ann.zip", "file", "file.zip", "kim", "ann2")}
    assert scores == {"ann": "100", "ann.zip": "60", "file": "100", "file.zip": "60", "kim": "100", "ann2": "100"}
    expected = {"Ann", "b\\udcffd", "b\\udcffd.sh", "b\\udcffd dir", LONG, f"{LONG}.zip", f"f{LONG}"}
    assert found.keys() >= expected


def test_each_odd_entry_of_the_zip_of_a_class_is_a_row_or_a_reason(tmp_path: Path) -> None:
    """What is over the bounds, leads out or cannot be decoded is the trouble of that student."""
    content, entries, none = odd_zip()
    put(tmp_path / "class.zip", content)
    batch = grade("batch", "class.zip", "--lab", "counter", cwd=tmp_path)
    found = rows(grade("export", cwd=tmp_path))
    *sums, names = told(batch)
    without = {name for name, row in found.items() if not row["score"]}

    assert sums == [entries, entries - none - len(without), len(without), none], batch.err
    assert len(names) == none
    assert len(found) == entries - none
    unread = next(name for name in found if name.startswith("unread"))
    assert without == {
        *("secret", "no zip", "deep", "climbs", "(etc_x.sh)", "many", "linked", "linked.sh", unread),
    }  # fmt: skip
    long = sorted(row["score"] for name, row in found.items() if name.startswith("sss"))
    assert (long, found[LONG]["score"]) == (["100", "60"], "100")
    assert {name: found[name]["score"] for name in ("ann", "Ann", "bob", "bob.zip", "cem", "flat")} == {
        **dict.fromkeys(("ann", "Ann", "bob.zip", "cem", "flat"), "100"),
        "bob": "60",
    }
    assert {found[name]["score"] for name in ("empty", "only hidden")} == {"0"}


def test_a_student_with_the_list_of_an_export_hides_nobody(tmp_path: Path) -> None:
    """Whose folder is the only one. A real export, with its zip and a roster beside it, is found all the same."""
    listed = b"submission_1:\n  :submitters:\n  - :name: Mallory\n"
    for name in ("ann.zip", "bob.zip"):
        put(tmp_path / "in" / name, packed({NAME: GOOD}))
    for folder in ("in/mallory", "outer/export"):
        put(tmp_path / folder / "submission_metadata.yml", listed)
        put(tmp_path / folder / "submission_1" / NAME)
    put(tmp_path / "outer" / "export.zip", packed({"export/x": b""}))
    put(tmp_path / "outer" / "class.csv")
    put(tmp_path / "outer" / ".DS_Store")
    put(tmp_path / "outer" / "export" / "late.zip", packed({NAME: GOOD}))
    export = discovered(tmp_path / "outer")

    assert [one.name for one in discovered(tmp_path / "in").submissions] == ["ann", "bob", "mallory"]
    assert [one.name for one in export.submissions] == ["submission_1"]
    assert {one.name: one.reason for one in export.skipped} == {
        "submission_metadata.yml": "the export's list of submissions",
        "late.zip": "not a submission's folder, as an export names them",
        "export.zip": "next to the folder or zip that holds the class",
        "class.csv": "next to the folder or zip that holds the class",
        ".DS_Store": HIDDEN,
    }


def test_who_is_listed_and_has_no_folder_is_a_row(tmp_path: Path) -> None:
    """By the export, with the students' names; and whoever is in the roster and handed in a file of another kind."""
    listed = "".join(f"submission_{number}:\n  :submitters:\n  - :name: Student {number}\n" for number in (1, 2))
    put(tmp_path / "export" / "submission_metadata.yml", listed.encode())
    put(tmp_path / "export" / "submission_1" / NAME)
    put(tmp_path / "in" / "bob.sh")
    for name in ("ann.rar", "ann.pdf", "bob.txt", "cem.txt"):
        put(tmp_path / "in" / name)
    roster = Roster(rows=(("ann", Student(name="Ann")), ("bob", Student(name="Bob"))))
    export, others = discovered(tmp_path / "export"), discovered(tmp_path / "in", roster)

    assert [(one.name, one.students[0].name) for one in export.submissions if one.failure] == [
        ("submission_2", "Student 2")
    ]
    assert [(one.name, one.students, bool(one.failure)) for one in others.submissions] == [
        ("ann", (Student(name="Ann"),), True),
        ("bob", (Student(name="Bob"),), False),
    ]
    assert [one.name for one in others.skipped] == ["ann.pdf", "bob.txt", "cem.txt"]


def test_an_archive_that_is_not_opened_needs_a_person(tmp_path: Path) -> None:
    """In the class, in a student's folder or zip, or by the name of the source: who, which file, and what to do."""
    right = tmp_path / "in"
    put(right / "ann" / "hw.tar.gz")
    put(right / "bob" / "late" / "HW.RAR")
    put(right / "bob" / "late" / "other.sh")
    put(right / "cem.tar.gz")
    put(right / "dan.7z")
    put(right / "eve.zip", packed({"hw/hw.tgz": b"x", "hw/notes.zip": packed({"notes.txt": b"x"})}))
    put(right / "fay" / NAME, b"\x1f\x8b and more")
    put(right / "gus.tar.gz")
    put(right / "gus" / NAME)
    put(right / "hal" / NAME)
    put(right / "hal" / "data.tar.gz")
    people = ("ann", "bob", "cem", "dan", "eve", "fay", "gus", "hal")
    roster = Roster(rows=tuple((name, Student(name=name)) for name in people))
    put(tmp_path / "class.zip", packed({f"{name}/hw.rar": b"x" for name in ("ann", "bob")} | {"cem.tar.gz": b"x"}))
    listed, zipped = discovered(right, roster), discovered(tmp_path / "class.zip")
    why = {one.name: one.failure for one in listed.submissions}
    unpack = "an archive of this kind is not opened; unpack it"

    assert list(why) == list(people)
    assert [name for name, failure in why.items() if not failure] == ["gus", "hal"]
    assert why["ann"].endswith(f"and no other .sh file; hw.tar.gz: {unpack}, and submit the file in it")
    assert why["bob"].endswith(f"it contains: late/other.sh; late/HW.RAR: {unpack}, and submit the file in it")
    assert why["cem"] == f"{right / 'cem.tar.gz'}: {unpack} into a folder of its name"
    assert why["dan"].endswith(f"dan.7z: {unpack} into a folder of its name")
    assert why["eve"].endswith(f"hw/hw.tgz: {unpack}, and submit the file in it")
    assert why["fay"].endswith(f"fay: {NAME} is a gzip archive and no source; unpack it, and submit the file in it")
    assert [(one.name, one.reason) for one in listed.skipped] == [
        ("gus.tar.gz", "an archive that is not opened, next to the folder of its name")
    ]
    assert [(one.name, unpack in one.failure) for one in zipped.submissions] == [
        ("ann", True), ("bob", True), ("cem", True),
    ]  # fmt: skip


def test_an_export_replaces_what_its_students_handed_in_before(tmp_path: Path) -> None:
    """A later hand-in has another name there. Who is listed without a folder keeps the result, as does a group's rest.

    An earlier one of the same student is no second row.
    """
    folder = tmp_path / "export"

    def hand_in(**people: str) -> dict[str, dict[str, str]]:
        listed = [
            f"submission_{name}:\n  :submitters:\n"
            + "".join(f"  - :name: {who}\n    :sid: '{who}'\n" for who in group.split())
            for name, group in people.items()
        ]
        put(folder / "submission_metadata.yml", "".join(listed).encode())
        grade("batch", "export", "--lab", "counter", "--jobs", "1", cwd=tmp_path)
        table = csv.DictReader(io.StringIO(grade("export", cwd=tmp_path).out))
        return {f"{row['submission']} {row['sid']}": row for row in table}

    for number in (1, 2, 3):
        put(folder / f"submission_{number}" / NAME)
    first = hand_in(**{"1": "Ann", "2": "Bob", "3": "Cem Dan"})
    for number in (1, 2, 3):
        shutil.rmtree(folder / f"submission_{number}")
    put(folder / "submission_8" / NAME, OTHER)
    put(folder / "submission_9" / NAME, OTHER)
    second = hand_in(**{"2": "Bob", "8": "Ann", "9": "Cem"})
    remark = "kept from run 1: nothing newer was handed in"

    assert {row["score"] for row in first.values()} == {"100"}
    assert {name: (row["score"], row.get("remark", "")) for name, row in second.items()} == {
        "submission_2 Bob": ("100", remark), "submission_3 Dan": ("100", remark),
        "submission_8 Ann": ("60", ""), "submission_9 Cem": ("60", ""),
    }  # fmt: skip
    assert hand_in(**{"2": "Bob", "8": "Ann", "9": "Cem"}) == second
