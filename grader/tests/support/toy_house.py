"""A copy of the house with the shelf and the ring among its labs, as real labs are: engine, cases, lab and samples."""

from __future__ import annotations

import shutil
from pathlib import Path

from grader.tests.support import toy, toy_c
from grader.tests.support.command import ROOT, copy_of_the_house
from grader.tests.support.toy_lab import RING, WRONG_RING

_ELSEWHERE = shutil.ignore_patterns("__pycache__", "cases", "engine.py", "right.c", "uses_the_library.py")
_LABEL = 'verdict = "wrong_answer"\nrules = ["taking"]\nsummary = "the ring does not go round"\n'


def house_with_toys(folder: Path) -> Path:
    """Make the copy in that folder."""
    house = copy_of_the_house(folder)
    for name in ("scripts", ".ci"):
        shutil.copytree(ROOT / name, house / name)
    for name, source_name, package in (("toy", "shelf.py", toy), ("ring", "ring.c", toy_c)):
        here = Path(str(package.__file__)).parent
        lab, engine = house / "grader" / "labs" / name, house / "reference" / name
        shutil.copytree(here / "cases", house / "cases" / name)
        shutil.copytree(here, lab, ignore=_ELSEWHERE)
        engine.mkdir()
        for file in ("__init__.py", "engine.py"):
            shutil.copy(here / file, engine)
        text = (lab / "lab.py").read_text(encoding="utf-8")
        text = text.replace('f"{__package__}.engine', f'"reference.{name}.engine')
        text = text.replace('HERE / "cases"', f'HERE.parents[2] / "cases" / "{name}"')
        (lab / "lab.py").write_text(text, encoding="utf-8")
        labs, entry = house / "grader" / "labs" / "__init__.py", '    "paged_kv": '
        text = labs.read_text(encoding="utf-8")
        labs.write_text(text.replace(entry, f'    "{name}": _in("{name}", "{source_name}"),\n{entry}', 1), "utf-8")
    samples = house / "submissions" / "ring"
    for place, source in {"accepted/right": RING, "wrong_answer/ends_at_the_last_slot": WRONG_RING}.items():
        (samples / place).mkdir(parents=True)
        (samples / place / "ring.c").write_text(source, encoding="utf-8")
    (samples / "wrong_answer" / "ends_at_the_last_slot" / "expect.toml").write_text(_LABEL, encoding="utf-8")
    (samples / "keeps.toml").write_text('"wrong_answer/ends_at_the_last_slot" = [62, 62]\n', encoding="utf-8")
    return house
