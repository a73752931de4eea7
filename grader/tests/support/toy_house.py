"""A copy of the house with the shelf among its labs, as a real lab would be: engine, cases and lab in their folders."""

from __future__ import annotations

import shutil
from pathlib import Path

from grader.tests.support import toy
from grader.tests.support.command import ROOT, copy_of_the_house


def house_with_toy(folder: Path) -> Path:
    """Make the copy in that folder."""
    house = copy_of_the_house(folder)
    for name in ("scripts", ".ci"):
        shutil.copytree(ROOT / name, house / name)
    here = Path(toy.__file__).parent
    lab, engine = house / "grader" / "labs" / "toy", house / "reference" / "toy"
    shutil.copytree(here / "cases", house / "cases" / "toy")
    for place, names in {lab: ("__init__.py", "lab.py", "starter.py"), engine: ("__init__.py", "engine.py")}.items():
        place.mkdir()
        for name in names:
            shutil.copy(here / name, place / name)
    text = (lab / "lab.py").read_text(encoding="utf-8")
    text = text.replace('f"{__package__}.engine:Shelf"', '"reference.toy.engine:Shelf"')
    text = text.replace('Path(__file__).parent / "cases"', 'Path(__file__).parents[3] / "cases" / "toy"')
    (lab / "lab.py").write_text(text, encoding="utf-8")
    labs = house / "grader" / "labs" / "__init__.py"
    entry = '    "paged_kv": '
    text = labs.read_text(encoding="utf-8").replace(entry, f'    "toy": _in("toy", "shelf.py"),\n{entry}', 1)
    labs.write_text(text, encoding="utf-8")
    return house
