"""The rubric: an instructor edits it, so every slip is said with its line, and the points always sum to 100."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment import rubric
from grader.core.errors import RubricError
from grader.core.rubric import Rubric
from grader.core.verdict import Judged
from grader.labs.paged_kv.lab import FACETS, lab
from reference.paged_kv.constants import L1_PT_SIZE

_FACETS = frozenset(facet.name for facet in FACETS)

REAL = (lab().cases / "rubric.toml").read_text(encoding="utf-8")
CALLS = tuple(lab().grammar.operations)


def loaded(folder: Path, text: str) -> Rubric:
    """The rubric of that text."""
    path = folder / "rubric.toml"
    path.write_text(text, encoding="utf-8")
    return rubric.load(path, _FACETS, CALLS)


def mistakes(folder: Path, text: str) -> list[str]:
    """What is wrong with the text, `line: message` each."""
    with pytest.raises(RubricError) as caught:
        loaded(folder, text)
    return [line.removeprefix(f"{folder / 'rubric.toml'}:") for line in str(caught.value).splitlines()]


def edited(*changes: tuple[str, str]) -> str:
    """The real rubric with the first of each text replaced."""
    text = REAL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def line_of(text: str, part: str) -> int:
    """The line on which a part of a text begins."""
    return text[: text.index(part)].count("\n") + 1


def test_the_real_rubric() -> None:
    """Rules worth 100 points, one of them for the build."""
    real = lab().rubric

    assert real.max_score == 100
    assert real.judged(Judged.BUILD) == "compile"
    assert real.rule("cow").points == 18
    assert real.rule("destroy").covers_cleanup
    with pytest.raises(KeyError):
        real.rule("cows")


@pytest.mark.parametrize(("points", "total"), [("8", 101), ("6", 99), ("0", 93)])
def test_points_must_sum_to_100(tmp_path: Path, points: str, total: int) -> None:
    """One point more or less is a mistake."""
    found = mistakes(tmp_path, edited(("points = 7", f"points = {points}")))

    assert found == [f"1: the points of all rules sum to {total}; they must sum to 100"]


def test_wrong_types_all_at_once(tmp_path: Path) -> None:
    """Nothing is converted quietly, and each has the line of its key."""
    text = edited(
        ("seed = 20110", 'seed = "x"'),
        ("points = 7", 'points = "8"'),
        ("points = 18", "points = true"),
        ('facets = ["reply"]', 'facets = "reply"'),
        ("covers_cleanup = true", "covers_cleanup = 1"),
    )
    found = mistakes(tmp_path, text)

    lines = [line_of(text, part) for part in ('seed = "x"', 'facets = "reply"', 'points = "8"', "points = true")]
    assert [int(line.partition(":")[0]) for line in found] == [*lines, line_of(text, "covers_cleanup = 1")]
    assert [line.split()[1] for line in found] == [
        "seed",
        "rules.null-check.facets",
        "rules.check-before-allocate.points",
        "rules.cow.points",
        "rules.destroy.covers_cleanup",
    ]


def test_mistakes_of_all_kinds_at_once(tmp_path: Path) -> None:
    """A wrong type does not hide an unknown facet."""
    found = mistakes(tmp_path, edited(("points = 7", 'points = "8"'), ('"choice"', '"choise"')))

    assert "rules.check-before-allocate.points must be a whole number from 0 to 100, not '8'" in found[0]
    assert "unknown word 'choise' in rules.first-fit.facets" in found[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("seed = 20110", "seed = -1"), "seed"),
        (("seed = 20110", "seed = 2147483648"), "seed"),
        (("seed = 20110", "seed = 20110\nsede = 3"), "sede"),
        (("seed = 20110", ""), "seed"),
        (("points = 7", "points = -8"), "points"),
        (("points = 7", "point = 8"), "point"),
        (
            ('title  = "a successful call returns 0 or the sequence"', ""),
            f"{line_of(REAL, '[rules.return-value]')}: rules.return-value.title",
        ),
        (('facets = ["choice"]', ""), "rules.first-fit needs either facets or judged"),
        (('judged = "leak"', 'judged = "leak"\nfacets = ["reply"]'), "rules.leak needs either facets or judged"),
        (("seed = 20110", "seed = 20110\nrules.odd = 3"), "1: rules must contain only tables: write [rules.NAME]"),
        (('judged = "leak"', 'judged = ["leak"]'), "rules.leak.judged must be text in quotes; one of: "),
        (('facets = ["choice"]', 'facets = [["choice"]]'), "rules.first-fit.facets must be a list of words such as ["),
        (
            ("[rules.list]", "[rules.cow]"),
            "the table [rules.cow] is defined twice, or adds to a value that is complete; write all of it in one place",
        ),
        (("seed = 20110", "seed = " + "9" * 5000), ""),
        (('judged = "build"', 'facets = ["reply"]'), "1: no rule is judged by build"),
        (('judged = "leak"', 'judged = "build"'), "compile is judged by build already, not leak"),
    ],
)
def test_a_rubric_that_cannot_be_used(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    """Limits, keys that are unknown or missing, and rules that nothing or two things would judge."""
    found = mistakes(tmp_path, edited(change))

    assert any(says in line for line in found), found
    assert all(line.partition(":")[0].isdecimal() for line in found)


@pytest.mark.parametrize("content", [b"", b"not toml", b"\xff\xfe\x00", b"seed = 1", b"seed = 1\nrules = 3"])
def test_a_file_that_is_no_rubric(tmp_path: Path, content: bytes) -> None:
    """Empty, binary, half: always a path and a line, never a traceback."""
    path = tmp_path / "rubric.toml"
    path.write_bytes(content)

    with pytest.raises(RubricError) as caught:
        rubric.load(path, _FACETS, CALLS)

    assert all(str(problem).startswith(f"{path}:") and problem.line >= 1 for problem in caught.value.problems)


@pytest.mark.parametrize("text", ["x = 1", "clauses = [1]", '[clauses]\na = "b"\nc = 3'])
def test_the_handouts_sentences_are_a_table_of_strings(tmp_path: Path, text: str) -> None:
    """Anything else is said with what to write."""
    path = tmp_path / "handout.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(RubricError, match=r"handout.toml:\d+: write a table \[clauses\]"):
        rubric.load_sentences(path, "clauses")


def test_sentences_and_titles_name_numbers_of_the_assignment(tmp_path: Path) -> None:
    """They are filled in; a wrong name is said with the line of its sentence."""
    path = tmp_path / "handout.toml"
    path.write_text('[clauses]\n"Part 1/a" = "{2*BOXES} boxes"\n"Part 1/b" = "{i} boxes"\n', encoding="utf-8")

    assert lab().rubric.rule("traversal").title == f"free, fork and destroy look at all {L1_PT_SIZE} L1 slots"
    assert rubric.load_sentences(path, "clauses") == {"Part 1/a": "{2*BOXES} boxes", "Part 1/b": "{i} boxes"}
    with pytest.raises(RubricError) as caught:
        rubric.load_sentences(path, "clauses", {"BOXES": 3})
    assert str(caught.value) == f"{path}:3: {{i}} has no value: there is no i; one of: BOXES"


def test_a_policy_changes_nothing_of_the_judging(tmp_path: Path) -> None:
    """So a record is rescored for another one."""
    assert loaded(tmp_path, f'feedback = "score"\n{REAL}').judging == lab().rubric.judging


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ('feedback = "ful"', "1: unknown feedback 'ful' (did you mean full?)"),
        ("feedback = 3", "1: feedback must be text in quotes; one of: full, rules, score"),
        ("[[release]]\nhand_ins = 2", "1: release.feedback is missing; one of: full, rules, score"),
        ('[[release]]\nfeedback = "full"', "1: a release needs a time or a number of hand-ins: write from = 2026-"),
        (
            '[[release]]\nfeedback = "full"\nfrom = "tomorrow"',
            "3: release.from must be a time with its zone: write from",
        ),
        ('[[release]]\nfeedback = "full"\nfrom = 2026-12-01T00:00:00', "3: release.from must be a time with its zone"),
        ('[[release]]\nfeedback = "full"\nfrom = 2026-12-01', "3: release.from must be a time with its zone"),
        ('[[release]]\nfeedback = "full"\nhand_ins = 0', "3: release.hand_ins must be a whole number from 1 to 1000"),
        ('[[release]]\nfeedback = "full"\nhand_in = 2', "3: unknown key 'release.hand_in' (did you mean hand_ins?)"),
        ('[release]\nfeedback = "full"', "1: release must contain only tables: write [[release]] above each"),
    ],
)
def test_a_wrong_policy_is_said_with_its_line(tmp_path: Path, policy: str, said: str) -> None:
    """And with what to write."""
    top = policy.startswith("feedback")
    text = f"{policy}\n{REAL}" if top else f"seed = 1\n{policy}\n{REAL}".replace("seed = 20110\n", "")
    line, _, words = said.partition(": ")
    mistake = f"{int(line) + (not top)}: {words}"

    assert any(each.startswith(mistake) for each in mistakes(tmp_path, text))
