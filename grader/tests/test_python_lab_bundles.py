"""Bundles of a lab with Python submissions carry this lab alone, and students get no oracle."""

from __future__ import annotations

import json
import shutil
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader.bundles.bundle import public_tree
from grader.bundles.platforms import BUNDLES
from grader.labs import open_lab
from grader.tests.support.command import Said, grade_process
from grader.tests.support.toy_house import house_with_toy
from grader.tests.support.toy_lab import RIGHT, WRONG, edited


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the house with the shelf among its labs."""
    return house_with_toy(tmp_path_factory.mktemp("toys") / "house")


@pytest.fixture(scope="module")
def starter(house: Path) -> Path:
    """What students begin with."""
    place = house.parent / "starter"
    said = grade_process("pack", "starter", place, "--lab", "toy", root=house, cwd=house.parent)
    assert said.code == 0, said.err
    return place


@cache
def reports(root: Path, lab: str, source: str) -> dict[str, Any]:
    """The record of a shelf, graded by the grader in this folder."""
    place = root.parent / f"in-{root.name}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "shelf.py").write_text(source, encoding="utf-8")
    said: Said = grade_process(
        "run", "shelf.py", "--lab", lab, "--public-only", "--format", "json", root=root, cwd=place
    )
    assert said.code in (0, 1), said.err
    record: dict[str, object] = json.loads(said.out)
    return record


@pytest.mark.parametrize("name", sorted(BUNDLES))
def test_a_bundle_carries_one_lab(house: Path, name: str) -> None:
    """Neither cases nor code of another one; the oracle only where no student sees it."""
    place = house.parent / f"made-{name}"
    said = grade_process("pack", name, place, "--lab", "toy", root=house, cwd=house.parent)
    files = [path.as_posix() for path in place.rglob("*") if path.is_file()]
    for path in place.rglob("*.zip"):
        files += zipfile.ZipFile(path).namelist()

    assert said.code == 0, said.err
    assert [path for path in files if "paged_kv" in path.removeprefix(str(house.parent))] == []
    assert bool([path for path in files if "reference/toy" in path]) == (name == "gradescope")
    assert bool([path for path in files if path.endswith("expected.json.gz")]) == (name != "gradescope")
    assert len([path for path in files if "cases/toy/share/" in path]) == (3 if name == "gradescope" else 2)


@pytest.mark.parametrize("source", [RIGHT, WRONG, edited(("self.free.pop(0)", "self.free.pop()"))], ids=len)
def test_recorded_expectations_say_what_the_oracle_says(house: Path, starter: Path, source: str) -> None:
    """The same verdict and first cause; no more points, because a case ends at its first difference."""
    whole, mine = reports(house, "toy", source), reports(starter / "grading", "toy", source)

    assert mine["verdict"] == whole["verdict"]
    assert _first_cause(mine) == _first_cause(whole)
    assert int(str(mine["score"])) <= int(str(whole["score"]))


def _first_cause(record: dict[str, Any]) -> list[object]:
    """Return what a report begins with, but what it costs and how many cases show it."""
    keys = ("rule", "sentence", "clause", "hint", "lines", "operation")
    return [[*(cause[key] for key in keys), cause["cases"][:1]] for cause in record["causes"][:1]]


@pytest.mark.parametrize(("name", "secret"), [("block_pool", "stand_in.py"), ("offload", "block_manager.py")])
def test_no_copy_for_students_has_what_stands_in(name: str, secret: str) -> None:
    """It is a solution of a part."""
    files = [file.name for file in public_tree(open_lab(name), ())]

    assert any(file.endswith(f"labs/{name}/lab.py") for file in files)
    assert not any(file.endswith(secret) for file in files)
