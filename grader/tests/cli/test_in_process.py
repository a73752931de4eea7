"""What tests call in their own process does what a started `grade` does, and leaves that process as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.tests.support.command import FEW, SAMPLES, grade, grade_process

_RIGHT = SAMPLES / "accepted" / "yoda_crlf"
_WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
_QUICK = ("--without-memory-checker", *FEW)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ((), {}),
        (("completion", "bash"), {}),
        (("run", "nowhere"), {}),
        (("cases", "--case", "append/*"), {"COLUMNS": "60", "PYTHONIOENCODING": "ascii"}),
        (("repro", _WRONG, "append/copy_takes_all_64_bytes", "--without-memory-checker"), {}),
        (("run", _RIGHT, *_QUICK), {"PATH": "/nowhere"}),
        (("pack", "starter", "made"), {}),
    ],
    ids=["nothing", "completion", "complaint", "encoding", "repro", "no tool", "pack"],
)
def test_it_says_and_writes_what_a_process_does(
    words: tuple[str | Path, ...], variables: dict[str, str], tmp_path: Path
) -> None:
    """Exit code, both streams, and files in the folder where it is called."""
    results = {}
    for call in (grade_process, grade):
        folder = tmp_path / call.__name__
        folder.mkdir()
        ended = call(*words, cwd=folder, variables=variables)
        files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        results[call.__name__] = (ended, files)

    assert results["grade"] == results["grade_process"]
