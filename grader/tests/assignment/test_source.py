"""Finding the file to grade: nearest wins, a tie is asked about, and what is no good file is a finding."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.assignment.samples import PATCH
from grader.assignment.source import Source, collect, names_below
from grader.core.errors import UsageError
from grader.core.verdict import Verdict

NAME = "llm_memory.c"
NOBODY = 65_534


def collected(path: Path) -> Source:
    """What `grade run path` would grade."""
    return collect(path, NAME, "compile")


def handed_in(folder: Path, content: bytes = b"int x;\n") -> Path:
    """A folder that holds the file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(content)
    return folder


def complaint(path: Path) -> str:
    """The finding on what lies there."""
    source = collected(path)

    assert source.finding is not None
    assert source.finding.verdict is Verdict.COMPILE_ERROR
    assert source.finding.rule == "compile"
    assert source.content == b""
    assert source.sha256 == ""
    return source.finding.message


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may enter; pytest's own are ours alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def powerless() -> Iterator[None]:
    """Be a user who may not read everything, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


def test_two_equally_near_are_asked_about(tmp_path: Path) -> None:
    """A tie is a question to the user, never a zero for the student."""
    handed_in(tmp_path / "a")
    handed_in(tmp_path / "b")

    with pytest.raises(UsageError) as caught:
        collected(tmp_path)

    assert f"a/{NAME}, b/{NAME}; give the path of one of them" in str(caught.value)


def test_a_search_without_end_is_our_users_slip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever names a whole disk means another path; the file may still be there, so that it is no zero."""
    monkeypatch.setattr("grader.assignment.source._MOST_ENTRIES", 10)
    for number in range(8):
        (tmp_path / "notes" / f"{number}").mkdir(parents=True)
    handed_in(tmp_path / "notes" / "7")

    assert collected(tmp_path).content == b"int x;\n"

    (tmp_path / "notes" / "8").touch()
    with pytest.raises(UsageError, match=f"more than 10 files in it; write the path of {NAME} itself"):
        collected(tmp_path)


def test_a_missing_file_is_a_finding_that_names_other_c_files(tmp_path: Path) -> None:
    """Most often it only has another name."""
    assert complaint(tmp_path) == f"there is no {NAME} in the folder, and no other .c file"

    (tmp_path / "LLM_Memory.c").touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "memory.c").touch()

    assert complaint(tmp_path).endswith("it contains: LLM_Memory.c, src/memory.c")


def test_an_archive_in_the_folder_is_named(tmp_path: Path) -> None:
    """With what to do; the hidden files that a Mac adds, and folders of such names, are none."""
    for name in ("hw.tar.gz", "src/old.7z", "._hw.tar.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "x.tar").mkdir()

    assert collected(tmp_path).is_unread
    assert complaint(tmp_path).endswith(
        "and no other .c file; hw.tar.gz, src/old.7z: an archive of this kind is not opened; unpack it, and submit the "
        "file in it"
    )


def test_a_missing_file_is_a_finding_that_names_files_with_another_ending(tmp_path: Path) -> None:
    """Windows hides the ending of a file, so editors there add one; what macOS hides is named to nobody."""
    for name in (f"{NAME}.txt", "LLM_memory.ipynb", f"._{NAME}", "notes.txt"):
        (tmp_path / name).touch()

    assert complaint(tmp_path).endswith(f"it contains: LLM_memory.ipynb, {NAME}.txt")


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    """It could lead to a file of ours."""
    (tmp_path / NAME).symlink_to("/etc/passwd")

    assert complaint(tmp_path) == f"{NAME} is a symbolic link; submit the file itself"
    assert complaint(tmp_path / NAME) == f"{NAME} is a symbolic link; submit the file itself"


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """In a folder it is what the student handed in; as our user's own path it is a slip."""
    (tmp_path / NAME).symlink_to("nowhere")

    assert "symbolic link" in complaint(tmp_path)
    with pytest.raises(UsageError, match="the link is broken"):
        collected(tmp_path / NAME)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("below", ["", NAME])
def test_a_pipe_is_not_read(tmp_path: Path, below: str) -> None:
    """Opening it would wait for ever, named directly or found in a folder."""
    os.mkfifo(tmp_path / NAME)

    assert complaint(tmp_path / below) == f"{NAME} is not a regular file"


def test_nothing_there_is_our_users_slip(tmp_path: Path) -> None:
    """A path that does not exist is no submission, however long it is."""
    for name in ("nowhere", "x" * 300):
        with pytest.raises(UsageError) as caught:
            collected(tmp_path / name)

        assert name in str(caught.value)


@pytest.mark.parametrize("closed", [NAME, ".", "inner"])
def test_what_we_may_not_read_is_never_a_zero(open_folder: Path, powerless: None, closed: str) -> None:
    """A file, its folder or a folder below it that is closed to us says nothing about the student."""
    folder = open_folder / "alice"
    handed_in(folder / "inner") if closed == "inner" else handed_in(folder)
    (folder / closed).chmod(0)
    try:
        with pytest.raises(UsageError, match="permission denied") as caught:
            collected(folder)
    finally:
        (folder / closed).chmod(0o755)

    assert PATCH not in str(caught.value)


def test_one_students_files_hide_no_others(open_folder: Path, powerless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab follows from the files of the class, also where a folder is closed or has as many as a virtualenv."""
    monkeypatch.setattr("grader.assignment.source._MOST_ENTRIES", 10)
    for number in range(11):
        handed_in(open_folder / "alice" / "venv" / f"{number}")
    handed_in(open_folder / "bob")
    (open_folder / "bob").chmod(0)
    try:
        names = names_below(open_folder)
        open_folder.chmod(0)
        with pytest.raises(UsageError, match="cannot be read: Permission denied"):
            names_below(open_folder)
    finally:
        open_folder.chmod(0o755)
        (open_folder / "bob").chmod(0o755)

    assert {"alice", "bob", NAME} <= names


def test_links_in_the_folder_of_a_class_are_followed(tmp_path: Path) -> None:
    """Whoever made that folder made them; further down nobody follows any."""
    handed_in(tmp_path / "elsewhere" / "jane")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "jane").symlink_to("../elsewhere/jane")
    (tmp_path / "elsewhere" / "jane" / "loop").symlink_to(tmp_path)

    assert names_below(tmp_path / "class") == {"jane", NAME, "loop"}


def test_own_headers_come_along_but_only_files_of_moderate_size(tmp_path: Path) -> None:
    """They explain a failing build; links, pipes and folders among them are passed over."""
    handed_in(tmp_path)
    (tmp_path / "llm_memory.h").write_bytes(b"#define MINE 1\n")
    (tmp_path / "link.h").symlink_to("/etc/passwd")
    (tmp_path / "folder.h").mkdir()
    (tmp_path / "huge.h").write_bytes(b"/" * 5_000_000)
    os.mkfifo(tmp_path / "pipe.h")

    assert collected(tmp_path).own_headers == {"llm_memory.h": b"#define MINE 1\n"}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04 and more", "is a zip archive"),
        (b"\x1f\x8b and more", "is a gzip archive"),
        (b"\x7fELF and more", "is a compiled program"),
        (b"%PDF-1.7", "is a PDF"),
        ("int x;".encode("utf-16"), "is saved as UTF-16"),
        (rb"{\rtf1\ansi int x;\par}", "is a rich text document"),
        (b"\n\n<!DOCTYPE html>\n<html>", "is a web page"),
        (b"<HTML lang=en>", "is a web page"),
        (b'{\n "cells": [\n  {', "is a Jupyter notebook"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n",
            "is only a pointer of Git LFS",
        ),
    ],
)
def test_what_is_plainly_no_source_is_called_by_its_name(tmp_path: Path, content: bytes, what: str) -> None:
    """A zero without a word would be for a file that nobody can read."""
    assert complaint(handed_in(tmp_path, content)).startswith(f"{NAME} {what}")


def test_a_folder_named_like_the_file_is_entered(tmp_path: Path) -> None:
    """As of an archive that was unpacked into a folder of its name; an empty one hides no file."""
    (tmp_path / "jane" / NAME).mkdir(parents=True)
    (tmp_path / "jane" / NAME / NAME).write_text("int x;\n", encoding="utf-8")
    (tmp_path / "joe" / NAME).mkdir(parents=True)
    (tmp_path / "joe" / "src").mkdir()
    (tmp_path / "joe" / "src" / NAME).write_text("int x;\n", encoding="utf-8")

    for name in ("jane", "joe"):
        assert collect(tmp_path / name, NAME, "compile").content == b"int x;\n"
