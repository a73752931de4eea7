"""`grade compare`: of each submission since its last hand-in, of two runs, or of two records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.tests.support.command import Said, grade
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.odd_classes import NAME, put

_EARLY = RIGHT.replace('add "$one"; done', 'add "$one"; break; done')
_BOTH = BELOW.replace('add "$one"; done', 'add "$one"; break; done')
_ROSTER = "folder,name,sid\nada,Ada Byron,1\nbob,Bob Ross,2\neve,Eve Moore,3\n"
_CLASSES = (
    {"ada": BELOW, "bob": RIGHT, "eve": _BOTH},
    {"ada": RIGHT, "bob": RIGHT, "eve": _BOTH},
    {"ada": RIGHT, "bob": _EARLY, "eve": _EARLY, "new": BELOW},
)
"""Three times a class hands in; Bob's second one is his first one, Ada's third one is her second one."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of three runs, of a class whose submissions changed in between."""
    made = tmp_path_factory.mktemp("hand-ins")
    (made / "roster.csv").write_text(_ROSTER, encoding="utf-8")
    with counters_in_process():
        for sources in _CLASSES:
            for name, source in sources.items():
                put(made / "in" / name / NAME, source.encode())
            assert grade("batch", "in", "--lab", "counter", "--roster", "roster.csv", cwd=made).code == 1
        yield made


def compared(place: Path, *words: str) -> Said:
    """`grade compare` in the folder of the class."""
    return grade("compare", *words, cwd=place)


def read(said: Said) -> dict[str, list[object]]:
    """For each submission the score before and now, and the rules that are fixed, new, and still broken."""
    return {
        each["submission"]: [
            each["score"],
            *([cause["rule"] for cause in each[kind]] for kind in ("fixed", "new", "still")),
        ]
        for each in json.loads(said.out)
    }


def test_each_is_compared_with_its_last_hand_in(place: Path) -> None:
    """That may be in another run for each; who handed in only once is counted."""
    said = compared(place, "--format", "json")
    runs = compared(place, "2", "3", "--format", "json")

    assert said.code == 1
    assert "1 of 4 have only one hand-in here" in said.err
    assert read(said) == {
        "ada": [[60, 100], ["below"], [], []],
        "bob": [[100, 83], [], ["counts"], []],
        "eve": [[43, 83], ["below"], [], ["counts"]],
    }
    assert read(runs)["ada"] == [[100, 100], [], [], []]
    assert compared(place, "1", "1").code == 0


def test_a_class_has_a_table_of_causes_and_one_of_submissions(place: Path) -> None:
    """How many fixed it, have it anew, have it still; --all adds the causes of each."""
    said = compared(place)

    assert said.out.startswith("3 compared: 2 with more points, 1 with fewer; mean 67.7 -> 88.7")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.out.splitlines() if line.startswith("│")]
    assert ["0", "1", "1"] in [row[:3] for row in rows if "counts, add_all" in row[-1]]
    assert ["2", "0", "0"] in [row[:3] for row in rows if "below, take" in row[-1]]
    assert ["eve", "43 -> 83", "1", "0", "1"] in rows
    assert "fixed:" not in said.out
    assert "  fixed:       below, take: " in compared(place, "--all").out


def test_a_student_is_known_by_name(place: Path) -> None:
    """With the causes and what they cost."""
    said = compared(place, "--student", "Eve Moore")
    fixed, still = said.out.splitlines()[1:]

    assert said.out.startswith("eve: 43 -> 83 points, wrong_answer\n")
    assert fixed.startswith("  fixed:       below, take: ")
    assert still.startswith("  still there: counts, add_all: ")
    assert "points)" in fixed
    assert compared(place, "--student", "new").out == "nothing to compare: no submission has two hand-ins\n"


def test_two_records_are_compared_without_a_store(place: Path) -> None:
    """What a student has from `grade run --format json`."""
    for number in (1, 3):
        record = grade("show", "eve", "--run", str(number), "--format", "json", cwd=place).out
        (place / f"{number}.json").write_text(record, encoding="utf-8")

    said = compared(place, "1.json", "3.json", "--store", "none.sqlite")

    assert said.out == compared(place, "--student", "eve").out


def test_wrong_words_say_what_to_write(place: Path) -> None:
    """Neither is there a traceback."""
    (place / "text.json").write_text("{}", encoding="utf-8")
    for words, said in (
        (("1", "none.json"), "'none.json' is no number of a run"),
        (("9" * 20, "1"), f"'{'9' * 20}' is no number of a run"),
        (("none.json", "other.json"), "none.json: No such file or directory; write the numbers of two runs"),
        (("text.json", "text.json"), "text.json: it is no record of this grader"),
        (("1", "99"), "there is no run 99"),
        (("--student", "Adda Byron"), "(did you mean Ada Byron?)"),
    ):
        done = compared(place, *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err, words
