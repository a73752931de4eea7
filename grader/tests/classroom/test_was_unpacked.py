"""A zip was unpacked already where the folder of its own name has its files; otherwise it is a submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom.discover import find_submissions
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.odd_classes import NAME, put
from grader.tests.support.packing import packed

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


def test_a_zip_beside_a_folder_of_another_name_is_a_submission(tmp_path: Path) -> None:
    """Though it has the same files, in a folder of that name."""
    put(tmp_path / "hw3" / NAME)
    put(tmp_path / "ann.zip", packed({f"hw3/{NAME}": GOOD}))

    assert [one.name for one in find_submissions(tmp_path, NAME, "starts").submissions] == ["ann", "hw3"]
