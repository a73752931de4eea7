"""`grade export --format jplag`: what was handed in, as JPlag reads it, under names that are nobody's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.labs import open_lab
from grader.tests.support.command import SAMPLES, Said, grade
from grader.tests.support.counter_house import RIGHT
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.odd_classes import put

_ROSTER = (
    "folder,name,sid\nann,Ann Example,1001\npair,Cem Example,1003\npair,Eve Example,1004\nodd,Odd Example,../../up\n"
    "half,With Id,1005\nhalf,Without Id,\n"
)
_HELPER = b"int helper(void);\n"


def call(place: Path, *words: str | Path) -> Said:
    """`grade` in the folder of the class."""
    return grade(*words, cwd=place)


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class: one student, a pair with a header of their own, one without an id, an odd id, nothing, no id at all."""
    folder = tmp_path_factory.mktemp("class")
    for name, sample in {
        "ann": "wrong_answer/no_copy_on_write",
        "pair": "accepted/yoda_crlf",
        "odd": "wrong_answer/all_null",
        "half": "wrong_answer/append_pointer_scale",
        "jane": "accepted/beginner_overcommented",
    }.items():
        shutil.copytree(SAMPLES / sample, folder / "in" / name, ignore=shutil.ignore_patterns("*.toml"))
    source = folder / "in" / "pair" / "llm_memory.c"
    source.write_bytes(b'#include "helper.h"\n' + source.read_bytes())
    put(folder / "in" / "pair" / "helper.h", _HELPER)
    put(folder / "in" / "empty" / "notes.txt", b"nothing yet")
    (folder / "class.csv").write_text(_ROSTER, encoding="utf-8")
    grade(
        *("batch", "in", "--lab", "paged_kv", "--roster", "class.csv", "--case", "init/*", "--without-memory-checker"),
        cwd=folder,
    )
    shutil.copytree(folder / "in", folder / "kept")
    shutil.rmtree(folder / "in")  # the store has what was handed in
    return folder


def test_each_submission_is_a_folder_of_the_students_own_files(place: Path) -> None:
    """By the id of its students, byte for byte; never outside of the folder; beside it what the course gave."""
    said = call(place, "export", "--format", "jplag", "--output", "jp")
    exported = files(place / "jp")
    submitted = {
        "1001/llm_memory.c": "ann/llm_memory.c",
        "1003-1004/llm_memory.c": "pair/llm_memory.c",
        "1003-1004/helper.h": "pair/helper.h",
        "up/llm_memory.c": "odd/llm_memory.c",
        "half/llm_memory.c": "half/llm_memory.c",
        "jane/llm_memory.c": "jane/llm_memory.c",
    }
    base = {"llm_memory.c", "llm_memory.h"}

    assert said.code == 0
    assert exported.keys() == {
        *(f"submissions/{name}" for name in submitted),
        *(f"base-code/{name}" for name in base),
        "submissions.csv",
    }
    for name, original in submitted.items():
        assert exported[f"submissions/{name}"] == (place / "kept" / original).read_bytes()
    for name in base:
        assert exported[f"base-code/{name}"] == open_lab("paged_kv").starter[name].read_bytes()


def test_what_cannot_be_exported_says_why(place: Path, tmp_path: Path) -> None:
    """And writes nothing: no folder, a full one, a comma, a language that JPlag does not know."""
    put(place / "full" / "mine.txt", b"work")
    for words, message in (
        ((), "write --output FOLDER"),
        (("--output", "full"), "full: it is not empty; write another name\n"),
        (("--output", "a,b"), "JPlag takes a comma for the end of a name"),
        (("--output", "no/where"), "there is no folder no"),
    ):
        said = call(place, "export", "--format", "jplag", *words)
        assert (said.code, said.out, message in said.err) == (2, "", True), said.err
    assert not (place / "a,b").exists()
    with counters_in_process():
        put(tmp_path / "in" / "ann" / "counter.sh", RIGHT.encode())
        call(tmp_path, "batch", "in", "--lab", "counter")
        said = call(tmp_path, "export", "--format", "jplag", "--output", "jp")
    assert (said.code, "JPlag does not compare submissions of counter" in said.err) == (2, True)
    assert not (tmp_path / "jp").exists()
