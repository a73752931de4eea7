"""A class's submissions are found wherever they come from, and known by their students' names."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom import roster
from grader.classroom.discover import Submitted, find_submissions
from grader.core.errors import ClassFileError, UsageError
from grader.core.record import Student
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.odd_classes import NAME, put
from grader.tests.support.packing import packed

_EXPORT = r"""---
submission_11:
  :submitters:
  - :name: Jane Doe
    :sid: '007'
    :email: jane@example.edu
  - :name: "J\xF6rg"
    :sid: 12
    :email: joerg@example.edu
  :created_at: 2026-09-25 13:16:26.371093000 -07:00
  :score: 0.0
  :history: !ruby/array:Hamster
  - :id: 1
submission_12: !ruby/hash:ActiveSupport::HashWithIndifferentAccess
  :submitters:
  - :name:
    :email: mail@example.edu
"""


def put_all(folder: Path, *names: str, text: str = "int x;\n") -> None:
    """Files with that text."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def found(folder: Path, who: roster.Roster | None = None) -> dict[str, Submitted]:
    """What is gathered, by name."""
    return {one.name: one for one in find_submissions(folder, "llm_memory.c", "compile", who).submissions}


def test_a_folder_of_repositories(tmp_path: Path) -> None:
    """Each folder is a submission, at whatever depth its file is; what is hidden is none."""
    put_all(tmp_path, "jane/llm_memory.c", "joe/src/llm_memory.c", ".git/llm_memory.c", "README.md")
    (tmp_path / "empty").mkdir()
    submitted = found(tmp_path)

    assert list(submitted) == ["empty", "jane", "joe"]
    assert submitted["joe"].source is not None
    assert submitted["joe"].source.content == b"int x;\n"
    assert submitted["empty"].source is not None
    assert submitted["empty"].source.finding is not None


@pytest.mark.parametrize("inner", ["", "assignment_9_export/"])
def test_a_gradescope_export(tmp_path: Path, inner: str) -> None:
    """Its list says who handed in what, groups too; unpacked into a folder of its own or not."""
    put_all(tmp_path, f"{inner}submission_metadata.yml", text=_EXPORT)
    put_all(tmp_path, f"{inner}submission_11/llm_memory.c", f"{inner}submission_12/llm_memory.c", f"{inner}other/x.c")
    submitted = found(tmp_path)

    assert list(submitted) == ["submission_11", "submission_12"]
    assert submitted["submission_11"].students == (
        Student(name="Jane Doe", sid="007", email="jane@example.edu"),
        Student(name="Jörg", sid="12", email="joerg@example.edu"),
    )
    assert submitted["submission_12"].students == (Student(name="mail@example.edu", email="mail@example.edu"),)


@pytest.mark.parametrize(
    ("text", "said"), [("a: [\n", "is not YAML"), ("- a\n", "not a list of submissions")], ids=["no YAML", "a list"]
)
def test_an_export_whose_list_is_broken_says_so(tmp_path: Path, text: str, said: str) -> None:
    """With its path, and no object is made of what it asks for."""
    put_all(tmp_path, "submission_1/llm_memory.c")
    put_all(tmp_path, "submission_metadata.yml", text=text)

    with pytest.raises(ClassFileError, match=said):
        found(tmp_path)


def test_a_pointer_of_git_lfs_is_never_a_zero(tmp_path: Path) -> None:
    """The student's file is elsewhere, and nobody has read it."""
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    put_all(tmp_path, "jane/llm_memory.c", text=text)
    (jane,) = found(tmp_path).values()

    assert jane.source is None
    assert "jane: llm_memory.c is only a pointer of Git LFS; submit the file itself" in jane.failure


def test_a_folder_that_is_no_class_says_what_to_write(tmp_path: Path) -> None:
    """One submission, nothing, a file, a name that is not there."""
    (tmp_path / "nothing").mkdir()
    put_all(tmp_path, "one/llm_memory.c")

    for name, said in (
        ("one", "it is one submission: grade run"),
        ("nothing", "no submission in it"),
        ("one/llm_memory.c", "that is a file"),
        ("none", "no such folder"),
    ):
        with pytest.raises(UsageError, match=said):
            found(tmp_path / name)


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_roster_names_students(tmp_path: Path, separator: str) -> None:
    """Two rows with one folder are a group; whoever handed in nothing is missing; Excel's mark and `;` are read."""
    lines = ["Folder,Name,SID,more", 'team,"Doe, Jane",1,x', "team,Joe,2,y", "gone,Jim,3,z", ",,,"]
    if separator == ";":
        lines = [line.replace('"Doe, Jane"', "Doe+ Jane").replace(",", ";").replace("+", ",") for line in lines]
    put_all(tmp_path, "class.csv", text="\ufeff" + "\n".join([*lines, ""]))
    put_all(tmp_path / "in", "team/llm_memory.c", "stranger/llm_memory.c")
    who = roster.load(tmp_path / "class.csv")
    submitted = found(tmp_path / "in", who)

    assert [one.name for one in submitted["team"].students] == ["Doe, Jane", "Joe"]
    assert submitted["stranger"].students == ()
    assert who.missing(list(submitted)) == (Student(name="Jim", sid="3"),)


def test_excels_line_with_the_separator_is_no_heading(tmp_path: Path) -> None:
    """The lines in messages stay those of the file."""
    put_all(tmp_path, "class.csv", text="\ufeffsep=;\r\nfolder;name\r\nteam;Doe, Jane\r\n")
    put_all(tmp_path, "wrong.csv", text="sep=,\nfolder,name\nteam,\n")

    assert roster.load(tmp_path / "class.csv").rows == (("team", Student(name="Doe, Jane")),)
    with pytest.raises(ClassFileError, match=r"wrong.csv:3: name is empty"):
        roster.load(tmp_path / "wrong.csv")


def test_a_quote_that_is_not_closed_swallows_no_student(tmp_path: Path) -> None:
    """Everybody behind it would be part of a name."""
    put_all(tmp_path, "class.csv", text='folder,name\na,"Ann\nb,Bob\nc,Cy\n')

    with pytest.raises(ClassFileError, match=r"unexpected end of data\); is a quote not closed\?"):
        roster.load(tmp_path / "class.csv")


def test_two_students_with_one_sid_are_refused(tmp_path: Path) -> None:
    """As where a spreadsheet has rounded them: a gradebook would give one the points of the other."""
    put_all(tmp_path, "class.csv", text="folder,name,sid\na,Ann,1.2E+11\nb,Bob,1.2E+11\na2,Ann,1.2E+11\nc,Cy,\nd,Di,\n")
    with pytest.raises(ClassFileError) as caught:
        roster.load(tmp_path / "class.csv")

    assert str(caught.value) == f"{tmp_path}/class.csv:3: the sid 1.2E+11 is also that of Ann"


def test_a_roster_knows_a_name_by_what_is_seen_of_it(tmp_path: Path) -> None:
    """A Mac's zip takes accents apart, a spreadsheet adds marks that nobody sees; another accent is another name."""
    put_all(tmp_path, "class.csv", text="folder,name\nJos\u00e9\u200b Doe,José\nJose Doe,Jose\nann\u00a0lee,Ann\n")
    put_all(tmp_path / "in", "Jose\u0301 Doe/llm_memory.c", "ann lee/llm_memory.c")
    who = roster.load(tmp_path / "class.csv")
    submitted = found(tmp_path / "in", who)

    assert {name: [one.name for one in entry.students] for name, entry in submitted.items()} == {
        "Jose\u0301 Doe": ["José"],
        "ann lee": ["Ann"],
    }
    assert [student.name for student in who.missing(list(submitted))] == ["Jose"]


def test_a_classroom_roster_names_users(tmp_path: Path) -> None:
    """GitHub's folders end with the user's name."""
    put_all(tmp_path, "class.csv", text="identifier,github_username,name\n1,Jane-D,Jane\n2,D,Dora\n")
    put_all(tmp_path / "in", "hw3-jane-d/llm_memory.c")

    submitted = found(tmp_path / "in", roster.load(tmp_path / "class.csv"))
    assert [one.name for one in submitted["hw3-jane-d"].students] == ["Jane"]


def test_a_wrong_roster_says_all_its_mistakes(tmp_path: Path) -> None:
    """With path and line."""
    path = tmp_path / "class.csv"
    put_all(tmp_path, path.name, text="folder,name\na,\n,b\nc,c\nc,c\nd,d,d\n")
    with pytest.raises(ClassFileError) as caught:
        roster.load(path)
    put_all(tmp_path, path.name, text="who,what\n")
    with pytest.raises(ClassFileError, match=r"class.csv:1: a column 'folder' or 'name' is missing"):
        roster.load(path)
    path.write_bytes(b"folder,name\na,\xff\n")
    with pytest.raises(ClassFileError, match="UTF-8"):
        roster.load(path)
    with pytest.raises(ClassFileError, match="cannot be read"):
        roster.load(tmp_path / "none.csv")

    assert str(caught.value).splitlines() == [
        f"{path}:2: name is empty",
        f"{path}:3: folder is empty",
        f"{path}:5: c occurs twice",
        f"{path}:6: more values than columns; put values that contain a comma in quotes",
    ]


GOOD, OTHER = RIGHT.encode(), BELOW.encode()

KEEPS: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {
    "flat": ({NAME: GOOD, "a.h": b"a"}, {NAME: GOOD, "a.h": b"a"}),
    "with its folder": ({f"hw/{NAME}": GOOD}, {f"hw/{NAME}": GOOD}),
    "without its folder": ({f"hw/{NAME}": GOOD, "hw/a.h": b"a"}, {NAME: GOOD, "a.h": b"a"}),
    "with other files": ({NAME: GOOD, "a.pdf": b"a"}, {NAME: GOOD, "b.pdf": b"b", ".git/x.sh": b""}),
    "a zip in it": ({"hw.zip": packed({NAME: GOOD})}, {"hw.zip": packed({NAME: GOOD})}),
}
DIFFERS: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {
    "another content": ({NAME: GOOD}, {NAME: OTHER}),
    "another content of one size": ({NAME: b"ab"}, {NAME: b"ba"}),
    "one more": ({NAME: GOOD}, {NAME: GOOD, "b.sh": b"b"}),
    "one less": ({NAME: GOOD, "b.sh": b"b"}, {NAME: GOOD}),
    "elsewhere": ({f"a/{NAME}": GOOD}, {f"b/{NAME}": GOOD}),
    "nothing in common": ({"a.pdf": b"a"}, {"b.pdf": b"b"}),
    "an empty zip": ({}, {NAME: GOOD}),
}


@pytest.mark.parametrize("form", ["folder", "class.zip"])
@pytest.mark.parametrize("name", [*KEEPS, *DIFFERS])
def test_a_zip_was_unpacked_where_the_folder_of_its_name_has_its_files(tmp_path: Path, name: str, form: str) -> None:
    """Whatever else lies there; otherwise it is a submission of its own. In the zip of a class too."""
    zipped, unpacked = (KEEPS | DIFFERS)[name]
    files = {"ann.zip": packed(zipped), f"bob/{NAME}": GOOD, **{f"ann/{one}": text for one, text in unpacked.items()}}
    for file, content in files.items():
        put(tmp_path / "folder" / file, content)
    put(tmp_path / "class.zip", packed(files))
    found = find_submissions(tmp_path / form, NAME, "starts")
    rows = [one.name for one in found.submissions]

    assert rows == (["ann", "bob"] if name in KEEPS else ["ann", "ann.zip", "bob"])
    assert [one.name for one in found.skipped] == ["ann.zip"] * (name in KEEPS)


def test_the_roster_of_github_classroom_is_read_as_it_is(tmp_path: Path) -> None:
    """Names are empty for most; who has not accepted the assignment has no user, and has handed in nothing."""
    text = (
        '"identifier","github_username","github_id","name"\n'
        '"jane@example.edu","janed","1001","Jane Doe"\n'
        '"bob@example.edu","bob-x","1002",""\n'
        '"dave@example.edu","","",""\n'
    )
    put_all(tmp_path, "class.csv", text=text)
    names = ["hw3-janed", "hw3-bob-x", "hw3-"]
    who = roster.load(tmp_path / "class.csv")
    students = who.students(names)

    assert students["hw3-janed"] == (Student(name="Jane Doe", sid="jane@example.edu"),)
    assert students["hw3-bob-x"] == (Student(name="bob@example.edu", sid="bob@example.edu"),)
    assert students["hw3-"] == ()
    assert who.missing(names) == (Student(name="dave@example.edu", sid="dave@example.edu"),)


def test_the_only_hand_in_of_a_class_is_not_the_class(tmp_path: Path) -> None:
    """A zip named like a student of the roster is the student's, whatever is in it."""
    (tmp_path / "class.csv").write_text("folder,name\njane,Jane\n", encoding="utf-8")
    put(tmp_path / "in" / "jane.zip", packed({"final/llm_memory.c": b"int x;\n", "backup/llm_memory.c": b"int y;\n"}))

    assert list(found(tmp_path / "in", roster.load(tmp_path / "class.csv"))) == ["jane"]
    assert list(found(tmp_path / "in")) == ["backup", "final"]
