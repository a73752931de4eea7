"""Bundles carry one lab alone, and students get no oracle of a lab that the plain judge serves, in either language."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader.bundles import BUNDLES, public_tree
from grader.labs import open_lab
from grader.tests.support.command import Said, grade_process
from grader.tests.support.toy_house import house_with_toys
from grader.tests.support.toy_lab import RIGHT, RING, WRONG, WRONG_RING, edited

SOURCES = {"toy": "shelf.py", "ring": "ring.c"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the house with the toys among its labs."""
    return house_with_toys(tmp_path_factory.mktemp("toys") / "house")


@cache
def packed(house: Path, name: str, lab: str) -> Path:
    """The bundle of that name."""
    place = house.parent / f"{name}-{lab}"
    said = grade_process("pack", name, place, "--lab", lab, root=house, cwd=house.parent)
    assert said.code == 0, said.err
    return place


@cache
def reports(root: Path, lab: str, source: str) -> dict[str, Any]:
    """The record of a submission, graded by the grader in this folder."""
    place = root.parent / f"in-{root.name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / SOURCES[lab]).write_text(source, encoding="utf-8")
    said: Said = grade_process("run", ".", "--lab", lab, "--public-only", "--format", "json", root=root, cwd=place)
    assert said.code in (0, 1), said.err
    record: dict[str, object] = json.loads(said.out)
    return record


@pytest.mark.parametrize("lab", SOURCES)
@pytest.mark.parametrize("name", sorted(BUNDLES))
def test_a_bundle_carries_one_lab(house: Path, name: str, lab: str) -> None:
    """Neither cases nor code of another one; the oracle only where no student sees it."""
    place = packed(house, name, lab)
    files = [path.as_posix() for path in place.rglob("*") if path.is_file()]
    for path in place.rglob("*.zip"):
        files += zipfile.ZipFile(path).namelist()

    assert [path for path in files if "paged_kv" in path.removeprefix(str(house.parent))] == []
    assert bool([path for path in files if f"reference/{lab}" in path]) == (name == "gradescope")
    assert bool([path for path in files if path.endswith("expected.json.gz")]) == (name != "gradescope")
    carried = {Path(path).name for path in files if f"cases/{lab}/" in path}
    hidden = {path.name for path in (house / "cases" / lab).glob("*/*.toml")} - carried
    assert len(hidden) == (name != "gradescope")


@pytest.mark.parametrize("lab", SOURCES)
def test_a_starter_says_what_is_in_it(house: Path, lab: str) -> None:
    """Its page names no command that is not there, and no engine."""
    place = packed(house, "starter", lab)
    text = (place / "README.md").read_text(encoding="utf-8")

    assert "has no reference program" in text
    assert "@" not in text
    assert ("make problems" in text) == (place / "Makefile").exists() == (lab == "ring")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed, and nothing else needs it")
def test_the_makefile_of_a_lab_in_c_builds_its_starter(house: Path) -> None:
    """By the handout's command."""
    done = subprocess.run(["make", "--dry-run"], cwd=packed(house, "starter", "ring"), capture_output=True, check=True)

    assert done.stdout == b"gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb -c ring.c -o ring.o\n"


_OTHER_ROOM = RING.replace("count > (size_t)(ring->capacity - ring->count)", "0")


@pytest.mark.parametrize(
    ("lab", "source"),
    [
        *(("toy", source) for source in (RIGHT, WRONG, edited(("self.free.pop(0)", "self.free.pop()")))),
        *(("ring", source) for source in (RING, WRONG_RING, _OTHER_ROOM)),
    ],
    ids=str.__len__,
)
def test_recorded_expectations_say_what_the_oracle_says(house: Path, lab: str, source: str) -> None:
    """The same verdict and first cause; no more points, because a case ends at its first difference."""
    whole, mine = reports(house, lab, source), reports(packed(house, "starter", lab) / "grading", lab, source)

    assert mine["verdict"] == whole["verdict"]
    assert _first_cause(mine) == _first_cause(whole)
    assert int(str(mine["score"])) <= int(str(whole["score"]))


def _first_cause(record: dict[str, Any]) -> list[object]:
    """Return what a report begins with, but what it costs and how many cases show it."""
    keys = ("rule", "sentence", "clause", "hint", "lines", "operation")
    return [[*(cause[key] for key in keys), cause["cases"][:1]] for cause in record["causes"][:1]]


@pytest.mark.parametrize(("name", "secret"), [("block_pool", "block_pool/oracle.py"), ("offload", "block_manager.py")])
def test_no_copy_for_students_has_what_stands_in(name: str, secret: str) -> None:
    """It is a solution of a part."""
    files = [file.name for file in public_tree(open_lab(name), ())]

    assert any(file.endswith(f"labs/{name}/lab.py") for file in files)
    assert not any(file.endswith(secret) for file in files)
