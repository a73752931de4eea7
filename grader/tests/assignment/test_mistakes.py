"""Known mistakes are data: an instructor edits hints without Python, so every slip is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment import rubric
from grader.assignment.lab import Mistake, Predicate
from grader.assignment.rubric import KnownWords, load_mistakes, with_predicates
from grader.core.errors import RubricError
from grader.core.judgement import Judgement
from grader.labs import LABS, open_lab
from grader.tests.support.toy_lab import lab

_FIRST = """[[mistakes]]
calls = ["take"]
facets = ["reply"]
rule = "taking"
sentence = "Part 1/enough"
hint = "look at {call}"
"""


def refused(judgement: Judgement) -> bool:
    """Whether the program refused."""
    return judgement.actual.refused


PREDICATES: dict[str, Predicate] = {"refused": refused}
_WORDS = KnownWords(calls=(), facets=(), rules=("taking",), clauses=(), where=())


def loaded(folder: Path, text: str) -> tuple[Mistake, ...]:
    """The known mistakes of that text."""
    path = folder / "mistakes.toml"
    path.write_text(text, encoding="utf-8")
    grammar, rules = lab().grammar, [rule.id for rule in lab().rubric.rules]
    facets = ["users", "free", "names", "reply"]
    words = KnownWords(calls=grammar.operations, facets=facets, rules=rules, clauses=grammar.clauses, where=PREDICATES)
    return with_predicates(load_mistakes(path, words), PREDICATES)


def problems(folder: Path, text: str) -> list[str]:
    """What is wrong with the text, `line: message` each."""
    with pytest.raises(RubricError) as caught:
        loaded(folder, text)
    return [line.removeprefix(f"{folder / 'mistakes.toml'}:") for line in str(caught.value).splitlines()]


def test_a_lab_without_a_file_knows_no_mistakes(tmp_path: Path) -> None:
    """Then each cause has the rule of its case, and the sentence."""
    assert load_mistakes(tmp_path / "none.toml", _WORDS) == ()


def test_slips_in_them_are_told_too(tmp_path: Path) -> None:
    """A word of [kinds] that stands for nothing readable, a call or a sentence that is none, an unknown predicate."""
    text = _FIRST.replace('"Part 1/enough"', '{ tak = "Part 1/enough", take = "Part 9", give = 3 }')
    text = text.replace("rule", 'where = "refuse"\nrule')

    assert problems(tmp_path, f'[kinds]\nstops = "crash"\n{text}') == [
        '2: kinds.stops must be a list of words such as ["hang"]',
        "6: unknown mistakes.where 'refuse' (did you mean refused?)",
        "8: unknown call 'tak' in the sentence (did you mean take?)",
        "8: unknown sentence 'Part 9'",
        "8: unknown sentence '3'",
    ]
    assert problems(tmp_path, f"kinds = 3\n{_FIRST}") == [
        '1: kinds must be a table: write [kinds], and below it stops = ["crash", "hang"]'
    ]


def test_a_hint_names_numbers_of_the_assignment(tmp_path: Path) -> None:
    """They are filled in when the file is read; a wrong name is said with its line, once."""

    def hint(text: str) -> str:
        path = tmp_path / "mistakes.toml"
        path.write_text(f'[[mistakes]]\nrule = "taking"\nhint = "{text}"\n', encoding="utf-8")
        ((mistake, _),) = load_mistakes(path, _WORDS, {"BOXES": 3})
        return mistake.hint

    assert hint("{call} takes {2*BOXES} of {{BOXES}}") == "{call} takes 6 of {{BOXES}}"
    with pytest.raises(RubricError) as caught:
        hint("{BOXS} boxes")
    assert [problem.message for problem in caught.value.problems] == [
        "{BOXS} has no value: there is no BOXS (did you mean BOXES?)"
    ]
    assert caught.value.problems[0].line == 3


def test_a_predicate_makes_an_entry_finer(tmp_path: Path) -> None:
    """It may stand before the entry without it, not behind it."""
    finer = _FIRST.replace("rule", 'where = "refused"\nrule')

    assert len(loaded(tmp_path, f"{finer}\n{_FIRST}")) == 2
    assert problems(tmp_path, f"{_FIRST}\n{finer}") == [
        "12: never used: the entry of line 1 fits whatever this one fits"
    ]


def test_all_slips_are_told_at_once(tmp_path: Path) -> None:
    """Each with its line and what to write."""
    text = (
        _FIRST
        + '\n[[mistakes]]\ncalls = ["tak"]\nfacets = ["fre"]\nrule = "takin"\nhint = "{cal} and {field}"\nwho = 1\n'
    )
    text += (
        '\n[[mistakes]]\nkinds = "hang"\npart = 3\nsentence = "Part 9"\nrule = "taking"\nhint = "{"\n\n[[mistakes]]\n'
    )

    assert problems(tmp_path, text) == [
        "9: unknown word 'tak' in mistakes.calls (did you mean take?)",
        "10: unknown word 'fre' in mistakes.facets (did you mean free?)",
        "11: unknown mistakes.rule 'takin' (did you mean taking?)",
        "12: unknown name 'cal' in the hint (did you mean call?)",
        "13: unknown key 'mistakes.who'",
        '16: mistakes.kinds must be a list of words such as ["hang"]',
        "17: part must be text in quotes",
        "18: unknown sentence 'Part 9'",
        "20: the hint has a single brace; write {{ and }} for braces",
        "22: mistakes.rule is missing; one of: giving, interface, naming, taking",
        '22: mistakes.hint is missing: write hint = "...", what to look at',
    ]


@pytest.mark.parametrize("name", LABS)
def test_every_hint_is_a_sentence(name: str) -> None:
    """Or ends with what fills a blank, or with code."""
    assert [
        mistake.hint for mistake in open_lab(name).mistakes if not mistake.hint.endswith((".", "}", ")", ";", "?"))
    ] == []


def test_every_predicate_is_named_by_a_mistake() -> None:
    """Else it is code for nothing."""
    assert {mistake.where for mistake in open_lab("paged_kv").mistakes} >= set(rubric.PREDICATES.values())
