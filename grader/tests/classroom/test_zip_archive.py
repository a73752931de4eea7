"""Zips of students and of a class: unpacked within bounds, and what is wrong with one is nobody else's trouble."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import pytest

from grader.classroom import zip_archive
from grader.classroom.discover import Submitted, find_submissions
from grader.core.errors import OutOfRoom, UsageError
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.packing import encrypted, link, packed

NAME = "llm_memory.c"
RIGHT = SAMPLES / "accepted" / "yoda_crlf" / NAME
C = b"int x;\n"


def put(path: Path, content: bytes) -> Path:
    """A file, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder of our own, and bounds that a small zip exceeds."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(zip_archive, "_MOST_ENTRIES", 200)
    monkeypatch.setattr(zip_archive, "MOST_TOTAL", 3 << 20)
    return folder


def found(folder: Path) -> dict[str, Submitted]:
    """What is gathered, by name; nothing of it stays behind."""
    submitted = {one.name: one for one in find_submissions(folder, NAME, "compile").submissions}

    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    return submitted


def content(one: Submitted) -> bytes:
    """What would be graded."""
    assert one.failure == ""
    assert one.source is not None
    assert one.source.finding is None
    return one.source.content


@pytest.mark.parametrize("where", ["class.zip", "in/class.zip"])
@pytest.mark.parametrize("wrapper", ["", "hw3/"])
def test_one_zip_of_the_class(tmp_path: Path, where: str, wrapper: str) -> None:
    """A folder, a zip or a C file for each student; named itself, or alone in a folder; with a wrapper or not."""
    everybody = {
        "Doe Jane_1_file/llm_memory.c": C,
        "joe_2/src/llm_memory.c": C,
        "joe_2/old/src/llm_memory.c": b"old",
        "jim_3.zip": packed({f"src/{NAME}": C}),
        "team/hw.zip": packed({NAME: C}),
        "jill_4_llm_memory.c": C,
        "empty/": b"",
        "index.html": b"<html>",
    }
    path = put(tmp_path / where, packed({wrapper + name: content for name, content in everybody.items()}))
    submitted = found(path if where == "class.zip" else path.parent)
    empty = submitted.pop("empty").source

    assert list(submitted) == ["Doe Jane_1_file", "jill_4_llm_memory", "jim_3", "joe_2", "team"]
    assert {content(one) for one in submitted.values()} == {C}
    assert empty is not None
    assert empty.finding is not None


def test_an_export_may_be_a_zip(tmp_path: Path) -> None:
    """As Gradescope makes it: its list says who handed in what."""
    listed = b"---\nsubmission_1:\n  :submitters:\n  - :name: Jane\n"
    files = {"submission_metadata.yml": listed, f"submission_1/{NAME}": C, "other/x.c": C}
    (one,) = found(
        put(tmp_path / "export.zip", packed({f"export/{name}": text for name, text in files.items()}))
    ).values()

    assert (one.name, content(one), [student.name for student in one.students]) == ("submission_1", C, ["Jane"])


BAD = {
    "encrypted": (encrypted(packed({NAME: C})), "the zip is encrypted; hand in one without a password"),
    "no zip": (b"PK\x03\x04 no more", "the zip is broken, so nothing of it could be unpacked"),
    "cut off": (packed({NAME: C * 99})[:60], "the zip is broken"),
    "changed": (packed({NAME: C}, how=zipfile.ZIP_STORED).replace(C, b"int y;\n"), "the zip is broken"),
    "rare": (packed({NAME: C}, how=zipfile.ZIP_LZMA), "uses an unusual compression"),
    "climbs": (packed({NAME: C, "a/../../evil.c": C}), "a/../../evil.c in the zip leads out of it"),
    "climbs back": (packed({NAME: C, "..\\evil.c": C}), r"..\evil.c in the zip leads out of it"),
    "absolute": (packed({NAME: C, "/tmp/evil.c": C}), "/tmp/evil.c in the zip leads out of it"),
    "drive": (packed({NAME: C, "C:\\evil.c": C}), r"C:\evil.c in the zip leads out of it"),
    "a link": (packed({NAME: link(NAME)}), "is a symbolic link; submit the file itself"),
    "below a link": (packed({"a.c": link("a.c"), f"a.c/{NAME}": C}), "is a symbolic link"),
    "a bomb": (packed({f"{number}.c": bytes(1 << 20) for number in range(4)}), "unpacks to more than 3 MB"),
    "a bomb in a zip": (packed({"a.zip": bytes(4 << 20)}), "unpacks to more than 3 MB"),
    "many files": (packed({f"{number}.txt": b"" for number in range(201)}), "more than 200 files"),
    "many folders": (packed({f"{number}/{'a/' * 50}x.c": b"" for number in range(5)}), "more than 200 files"),
    "deep": (packed({f"{'a/' * 70}x.c": C}), "more than 64 folders deep"),
    "too nested": (packed({"a.zip": packed({"b.zip": packed({NAME: C})})}), "it is a zip in a zip in a zip"),
    "two zips": (packed({"a.zip": packed({NAME: C}), "b.zip": packed({NAME: C})}), "more than one zip: a.zip, b.zip"),
    "a tie": (packed({f"a/{NAME}": C, f"b/{NAME}": C}), "several files can be graded:"),
    "a name twice": (packed({f"a/{NAME}": C, f"a//{NAME}": C}), "there is another file of that name"),
    "a file as a folder": (packed({"a.c": C, f"a.c/{NAME}": C}), "cannot be unpacked"),
    "a long path": (packed({f"{('x' * 200 + '/') * 30}x.c": C}), "cannot be unpacked: File name too long"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["zips", "folders", "class"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_zip_is_the_trouble_of_one(tmp_path: Path, form: str, name: str) -> None:
    """One sentence, the same each time; the others are found, and nothing is written elsewhere."""
    bad, said = BAD[name]
    files = {"jane.zip": packed({NAME: C}), "bad.zip": bad, "joe.zip": packed({NAME: C})}
    if form == "folders":
        files = {file.replace(".zip", "/hw3.zip"): content for file, content in files.items()}
    if form == "class":
        files = {"class.zip": packed(files)}
    for file, written in files.items():
        put(tmp_path / "in" / file, written)
    submitted = found(tmp_path / "in")

    assert list(submitted) == ["bad", "jane", "joe"]
    assert (content(submitted["jane"]), content(submitted["joe"])) == (C, C)
    assert submitted["bad"].source is None
    assert said in submitted["bad"].failure
    assert "\n" not in submitted["bad"].failure
    assert "grade-" not in submitted["bad"].failure
    assert found(tmp_path / "in")["bad"].failure == submitted["bad"].failure
    assert not Path("/tmp/evil.c").exists()
    assert not list(tmp_path.rglob("evil.c"))


def test_what_leads_out_of_the_zip_of_a_class_is_nobodys_trouble_but_its_own(tmp_path: Path) -> None:
    """Below a student's folder it is that student's."""
    names = (
        "hw/jane/llm_memory.c",
        "hw/joe/llm_memory.c",
        "hw/joe/../../evil.c",
        "../evil.c",
        "/etc/evil.c",
        "hw/x/y.c",
    )
    submitted = found(put(tmp_path / "class.zip", packed(dict.fromkeys(names, C))))

    assert {name for name, one in submitted.items() if "leads out of it" in one.failure} == {
        "(.._evil.c)",
        "(etc_evil.c)",
        "joe",
    }
    assert content(submitted["jane"]) == C


def test_a_large_file_in_a_zip_is_told_as_one_in_a_folder(tmp_path: Path) -> None:
    """With its size; of what tells more than it holds nothing more is written."""
    put(tmp_path / "jane.zip", packed({NAME: bytes(5_000_000)}))
    source = found(tmp_path)["jane"].source

    assert source is not None
    assert source.finding is not None
    assert source.finding.message.startswith(f"{NAME} is 5.0 MB long; the limit is 1.0 MB")


def test_a_list_of_files_that_is_too_long_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read whole before it is looked at, so its length is looked at first; then the number of files."""
    put(tmp_path / "jane.zip", packed({f"{number}.txt": b"" for number in range(150)} | {NAME: C}))
    monkeypatch.setattr(zip_archive, "_MOST_MEMBERS", 100)
    assert "more than 100 files" in found(tmp_path)["jane"].failure

    monkeypatch.setattr(zip_archive, "_MOST_READ", 5_000)
    assert "the zip is broken" in found(tmp_path)["jane"].failure


def test_a_zip_with_more_files_than_a_class_has_names_who_packed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have several times as many as that of a student."""
    monkeypatch.setattr(zip_archive, "_MOST_MEMBERS", 100)
    files = {f"class/jane/{number}.txt": b"" for number in range(400)} | {f"class/joe/{NAME}": C}
    put(tmp_path / "class.zip", packed(files))
    assert list(found(tmp_path / "class.zip")) == ["jane", "joe"]

    put(tmp_path / "class.zip", packed(files | {f"class/jane/{number}.md": b"" for number in range(200)}))
    with pytest.raises(UsageError, match=r"more than 500 files in the zip, 600 of them in class/jane; unpack it"):
        found(tmp_path / "class.zip")


def test_a_zip_of_one_submission_is_no_class(tmp_path: Path) -> None:
    """Named itself that is said; alone in a folder it is a class of one."""
    path = put(tmp_path / "jane.zip", packed({NAME: C, f"old/{NAME}": b"old"}))

    assert content(found(tmp_path)["jane"]) == C
    with pytest.raises(UsageError, match="it is one submission: unpack it and grade run its folder"):
        found(path)
    with pytest.raises(UsageError, match="no submission in it"):
        found(put(tmp_path / "in" / "nothing.zip", packed({"notes.txt": C})))
    with pytest.raises(UsageError, match="the zip is broken"):
        found(put(tmp_path / "in" / "broken.zip", b""))


def test_names_of_students_are_what_they_are(tmp_path: Path) -> None:
    """macOS writes UTF-8 without a word; names that are too long for a disk are cut, and stay different."""
    long = {f"{'x' * 300}{number}_{NAME}": C for number in range(2)} | {f"y/{'z' * 300}/{NAME}": C}
    files = packed({f"Joerg/{NAME}": C, **long}, how=zipfile.ZIP_STORED)
    submitted = found(put(tmp_path / "class.zip", files.replace(b"Joerg", "Jörg".encode())))

    assert [name[:20] for name in submitted] == ["Jörg", "x" * 20, "x" * 20, "y"]
    assert {content(one) for one in submitted.values()} == {C}


def test_a_full_disk_is_no_students_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the batch, and the same command grades later."""
    put(tmp_path / "jane.zip", packed({NAME: C}))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zip_archive.Archive, "_pieces", full)
    with pytest.raises(OutOfRoom, match="No space left"):
        found(tmp_path)


def test_batch_grades_a_zip_of_a_class(tmp_path: Path) -> None:
    """Points for who can be graded; the others are listed apart, and the same command finds the same run."""
    files = {"jane.zip": packed({NAME: RIGHT.read_bytes()}), "bad.zip": encrypted(packed({NAME: C}))}
    put(tmp_path / "class.zip", packed(files))
    first, again = (grade("batch", "class.zip", "--without-memory-checker", *FEW, cwd=tmp_path) for _ in range(2))
    shown = grade("show", "jane", cwd=tmp_path)

    assert (first.code, again.code) == (3, 3)
    assert "class.zip/bad.zip: the zip is encrypted; hand in one without a password" in " ".join(first.all.split())
    assert "run 1" in again.all
    assert "run 2" not in again.all
    assert shown.code == 0
    assert "a file or a zip for each" in " ".join(grade("batch", "--help").out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("name", "encoding"), [("李小明_2023533001", "gb2312"), ("José Núñez", "utf-8"), ("Müller, Jörg", "cp437")]
)
def test_names_in_an_undeclared_encoding_are_read(tmp_path: Path, name: str, encoding: str) -> None:
    """As Windows in China, a Mac and an old DOS tool write them, none of whom says how."""
    written = name.encode(encoding)
    placeholder = "x" * len(written)
    files = packed({f"{placeholder}/{NAME}": C, f"other/{NAME}": C}, how=zipfile.ZIP_STORED)
    path = put(tmp_path / "class.zip", files.replace(placeholder.encode(), written))

    assert name in found(path)
