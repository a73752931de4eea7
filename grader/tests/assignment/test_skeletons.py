"""The skeleton that lies in a bundle, within its copy of the grader, is nobody's submission."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from grader.assignment.case_files import select_cases
from grader.bundles import BUNDLES
from grader.labs.paged_kv.lab import lab
from grader.tests.assignment.test_source import NAME, collected, complaint, handed_in


@pytest.mark.parametrize("name", BUNDLES)
def test_a_skeleton_that_belongs_to_a_bundle_is_never_graded(tmp_path: Path, name: str) -> None:
    """Not where there is nothing else, nor where the student's own lies deeper; the message says where to put that."""
    files = list(BUNDLES[name].make(lab(), select_cases(lab(), seed=1).cases))
    for file in files:
        if file.name != NAME:  # that one the student has removed
            (tmp_path / file.name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file.name).write_bytes(file.content)
    if name == "gradescope":
        with ZipFile(tmp_path / "gradescope.zip") as packed:
            packed.extractall(tmp_path)
    (skeleton,) = (path.relative_to(tmp_path) for path in tmp_path.rglob(NAME))
    copy = Path(*skeleton.parts[: skeleton.parts.index("grader") + 1])
    said = complaint(tmp_path)

    assert said == (
        f"there is no {NAME} in the folder, and no other .c file. Put your file at the top of the folder: "
        f"{copy} belongs to the grader, and {NAME} there is never graded"
    )
    own = handed_in(tmp_path.joinpath(*"abcdefg"))
    assert collected(tmp_path).path == own / NAME
    assert collected(tmp_path).notes == ()
    assert collected(tmp_path / skeleton).content == (tmp_path / skeleton).read_bytes()
