"""A copy of the house with the counter among its labs, whose gradings take 20 ms, for tests of the command line."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from grader.tests.support import counter
from grader.tests.support.command import ROOT, copy_of_the_house

RIGHT = """
start() { total=0; }
stop() { total=-1; }
add() { total=$((total + $1)); }
add_all() { for one; do add "$one"; done; }
take() { [ "$1" -le "$total" ] && total=$((total - $1)); }
"""
"""A submission with all points."""
BELOW = RIGHT.replace('[ "$1" -le "$total" ] && ', "")
"""One with 60 points."""


def house_with_counter(folder: Path) -> Path:
    """Make the copy in that folder."""
    house = copy_of_the_house(folder)
    lab = house / "grader" / "labs" / "counter"
    shutil.copytree(Path(counter.__file__).parent, lab, ignore=shutil.ignore_patterns("__pycache__"))
    for path in lab.glob("*.py"):
        text = path.read_text(encoding="utf-8").replace(counter.__name__, "grader.labs.counter")
        path.write_text(text, encoding="utf-8")
    labs = house / "grader" / "labs" / "__init__.py"
    text = labs.read_text(encoding="utf-8")
    entry = '    "paged_kv": '
    labs.write_text(text.replace(entry, f'    "counter": _in("counter", "counter.sh"),\n{entry}', 1), encoding="utf-8")
    return house


def counter_class(place: Path, sources: Mapping[str, str]) -> Path:
    """Make the folders `house` and `in`, which has a submission for each of these sources; return `place`."""
    house = house_with_counter(place / "house")
    for name in ("scripts", ".ci"):
        shutil.copytree(ROOT / name, house / name)
    for name, source in sources.items():
        (place / "in" / name).mkdir(parents=True)
        (place / "in" / name / "counter.sh").write_text(source, encoding="utf-8")
    return place
