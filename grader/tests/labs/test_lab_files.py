"""The files of a lab are read once for each state of them: what is stored is what is in them. They cite its handout."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from grader.assignment import rubric
from grader.assignment.rubric import PREDICATES
from grader.labs import LABS, lab_files, open_lab
from grader.labs.paged_kv.lab import FACETS, lab

_NUMBERED = re.compile(r"(Constraint|Part|Section|Task)s? (\d[\d.]*(?:(?:, | and | to |-)\d[\d.]*)*)")
"""Places with numbers: "Task 2", "Parts 1 to 3", "Constraints 2, 3 and 5"."""

_FACETS = frozenset(facet.name for facet in FACETS) | {"reply"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files of a lab, of which nothing is stored yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cases"
    folder.mkdir()
    for path in lab().cases.glob("*.toml"):
        shutil.copy(path, folder)
    return folder


def read(folder: Path) -> Any:
    """Rubric, sentences and known mistakes of the folder."""
    grammar = lab().grammar
    return lab_files._read(
        folder,
        _FACETS,
        list(grammar.operations),
        [*PREDICATES, "never-set", "takes-too-many-blocks", "no-copy-needed"],
        constants=grammar.constants,
    )


def never(*_: object, **__: object) -> Any:
    """In the place of a reader."""
    raise AssertionError("read again")


def test_they_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab has what is in its files, each mistake with its predicate."""
    first = read(folder)
    monkeypatch.setattr(rubric, "load", never)
    rules, clauses, situations, mistakes = read(folder)

    assert (rules, clauses, situations, mistakes) == first
    assert (rules, clauses, situations) == (lab().rubric, lab().grammar.clauses, lab().situation_words)
    assert [mistake.hint for mistake, _ in mistakes] == [mistake.hint for mistake in lab().mistakes]
    assert [bool(where) for _, where in mistakes] == [mistake.where is not None for mistake in lab().mistakes]
    assert any(where for _, where in mistakes)


def parts(handout: str) -> dict[str, str]:
    """The text of each part, by its heading up to a colon or bracket, and of each constraint."""
    headings = list(re.finditer(r"^(##+) (.+)$", handout, re.MULTILINE))
    found = {}
    for heading in headings:
        depth = len(heading[1])
        ends = (other.start() for other in headings if other.start() > heading.start() and len(other[1]) <= depth)
        text = handout[heading.end() : next(ends, None)]
        found[re.split(r"[:(]", heading[2].replace("`", ""))[0]] = text
        if "what holds everywhere" in heading[2].lower():
            constraints = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", text, re.MULTILINE | re.DOTALL)
            found |= {f"Constraint {number}": said for number, said in constraints}
    return found


def absent(place: str, known: dict[str, str]) -> list[str]:
    """What a place names that these parts do not have: "Task 2, Phase A" is a part, and words or a step in it."""
    missing = []
    for one in place.split("; "):
        match = _NUMBERED.match(one)
        names, rest = (numbered(match[1], match[2]), one[match.end() :]) if match else ([one], "")
        texts = {name: text for name in names for part, text in known.items() if f"{part} ".startswith(f"{name} ")}
        missing += [name for name in names if name not in texts]
        for detail in filter(None, re.split(r", | and ", rest)):
            step = re.sub("steps? ", "", detail)
            wanted = f"\n{step}. " if step.isdigit() else detail.lower()
            missing += [detail] * (wanted not in "".join(texts.values()).lower())
    return missing


def numbered(kind: str, numbers: str) -> list[str]:
    """The names of the places: "1 to 3" are three, "1 and 3" two."""
    names: list[str] = []
    for one in re.split(r", | and ", numbers):
        first, *last = re.split(r" to |-", one)
        names += [f"{kind} {number}" for number in (range(int(first), int(last[0]) + 1) if last else [first])]
    return names


@pytest.mark.parametrize("name", LABS)
def test_all_places_that_are_cited_are_in_the_handout(name: str) -> None:
    """By rules, by the names of sentences, and by calls."""
    lab = open_lab(name)
    known = parts((lab.cases / "handout.md").read_text(encoding="utf-8"))
    places = {rule.handout for rule in lab.rubric.rules}
    places |= {clause.partition("/")[0] for clause in lab.grammar.clauses}
    places |= {call.task for call in lab.grammar.operations.values() if call.task}

    assert {place: absent(place, known) for place in places if absent(place, known)} == {}
