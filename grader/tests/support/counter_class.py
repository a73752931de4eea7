"""A copy of the house in which the counter is one of the labs, with a class of counters beside it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from grader.tests.support import counter
from grader.tests.support.command import ROOT, copy_of_the_house

__all__ = ["counter_class"]


def counter_class(place: Path, sources: Mapping[str, str]) -> Path:
    """Make the folders `house` and `in`, which has a submission for each of these sources; return `place`."""
    house = copy_of_the_house(place / "house")
    for name in ("scripts", ".ci"):
        shutil.copytree(ROOT / name, house / name)
    folder = house / "grader" / "labs" / "counter"
    shutil.copytree(Path(counter.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8").replace(counter.__name__, "grader.labs.counter")
        path.write_text(text, encoding="utf-8")
    labs = house / "grader" / "labs" / "__init__.py"
    text = labs.read_text(encoding="utf-8").replace(
        "from grader.labs.paged_kv", "from grader.labs.counter.lab import lab as counter\nfrom grader.labs.paged_kv"
    )
    labs.write_text(text.replace("    ", '    "counter": counter,\n    ', 1), encoding="utf-8")
    for name, source in sources.items():
        (place / "in" / name).mkdir(parents=True)
        (place / "in" / name / "counter.sh").write_text(source, encoding="utf-8")
    return place
