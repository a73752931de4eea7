"""The first entry of the table that fits is used, whichever symptom it fits; a look-up leaves out none that fits."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from grader.assignment.lab import SEVERAL_TARGETS, Clue
from grader.core.judgement import UNREAD, Difference
from grader.core.verdict import Verdict
from grader.judge.calls import Patterns
from grader.judge.compare import compare
from grader.judge.evidence import Evidence
from grader.judge.mistakes import ClueTable, best_clue, clue_alone
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import Comparison
from grader.runtime.native.native_played import NativePlayed
from grader.tests.support.programs import expected_records, made, told

_CREATE = 1
"""The operation of the case that goes wrong."""

_COUNTS = Clue(rule="free-count", hint="counts", facets=frozenset({"counters"}))
_CREATES = Clue(rule="ref-count", hint="creates", calls=frozenset({"create_sequence"}), tags=frozenset({"too-low"}))
_FORKS = Clue(rule="cow", hint="forks", calls=frozenset({"fork_sequence"}))
_CRASHES = Clue(rule="memory-error", hint="crashes", kinds=frozenset({"crash"}))
_ANY = Clue(rule="list", hint="any")


def comparison(*, engines: int = 1) -> Comparison:
    """A case that went right, with symptoms beside it that a test makes."""
    story = (
        f"@{number} llm_init 512 -> engine; @{number} create_sequence 1 20 -> seq" for number in range(1, engines + 1)
    )
    case = made("mine", "; ".join(story), header="")
    played = NativePlayed(case, steps=told(expected_records(case)))
    played.ended = True
    return compare(played, lab().model)


def differing(facet: str, *tags: str) -> Evidence:
    """A difference at the call of create_sequence."""
    difference = Difference(facet=facet, field=facet, expected="1", actual="2", tags=frozenset(tags))
    return Evidence(operation=_CREATE, verdict=Verdict.WRONG_ANSWER, difference=difference)


def crashing() -> Evidence:
    """A crash of that call."""
    return Evidence(operation=_CREATE, verdict=Verdict.RUN_TIME_ERROR, kind="crash")


_NO_PATTERNS = Patterns((), {})


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_first_entry_wins_in_any_order_of_the_symptoms(order: tuple[int, ...]) -> None:
    """The symptom that it fits is the cause."""
    symptoms = [differing("ref_count", "too-low"), differing("counters"), differing("list")]
    shuffled = [symptoms[place] for place in order]

    for clues in permutations([_COUNTS, _CREATES, _FORKS]):
        cause, clue = best_clue(shuffled, comparison(), ClueTable(clues), _NO_PATTERNS)
        first = next(each for each in clues if each is not _FORKS)

        assert (cause, clue) == (symptoms[0] if first is _CREATES else symptoms[1], first)


def test_of_symptoms_that_an_entry_fits_the_first_is_the_cause() -> None:
    """They come in the order of the record."""
    symptoms = [differing("list"), differing("counters"), differing("ref_count")]

    assert best_clue(symptoms, comparison(), ClueTable([_ANY]), _NO_PATTERNS) == (symptoms[0], _ANY)


def test_a_reply_comes_before_the_state_and_the_state_before_memory() -> None:
    """Whatever the order of the table."""
    symptoms = [crashing(), differing("counters"), differing("reply")]

    for table in (ClueTable([_CRASHES, _COUNTS, _ANY]), ClueTable([_ANY])):
        assert best_clue(symptoms, comparison(), table, _NO_PATTERNS) == (symptoms[2], _ANY)
    assert best_clue(symptoms, comparison(), ClueTable([_CRASHES, _COUNTS]), _NO_PATTERNS) == (symptoms[1], _COUNTS)
    assert best_clue(symptoms, comparison(), ClueTable([_FORKS, _CRASHES]), _NO_PATTERNS) == (symptoms[0], _CRASHES)


def test_without_an_entry_the_rule_is_that_of_the_case() -> None:
    """And the most telling symptom is the cause."""
    symptoms = [crashing(), differing("counters")]
    cause, clue = best_clue(symptoms, comparison(), ClueTable([_FORKS]), _NO_PATTERNS)

    assert cause is symptoms[1]
    assert clue is not None
    assert (clue.rule, clue.hint) == (comparison().case.rule, "{wanted}")


def test_what_could_not_be_read_fits_entries_for_it_only() -> None:
    """It says nothing about what a call does to the value, so no other hint would be true."""
    symptom, unread = differing("counters", UNREAD), Clue(rule="list", hint="unread", tags=frozenset({UNREAD}))
    _, clue = best_clue([symptom], comparison(), ClueTable([_COUNTS, _ANY]), _NO_PATTERNS)

    assert clue is not None
    assert clue.rule == comparison().case.rule
    assert "spelt as there" in clue.hint
    assert best_clue([symptom], comparison(), ClueTable([_COUNTS, unread]), _NO_PATTERNS) == (symptom, unread)


@pytest.mark.parametrize("word", ["actual", "expected", "field", "wanted"])
def test_a_hint_about_a_value_fits_no_crash(word: str) -> None:
    """Its words would be empty."""
    table = ClueTable([Clue(rule="list", hint=f"It must be {{{word}}}."), _ANY])

    assert best_clue([crashing()], comparison(), table, _NO_PATTERNS)[1] is _ANY
    assert best_clue([differing("counters")], comparison(), table, _NO_PATTERNS)[1] is table.clues[0]


def test_entries_of_several_targets_explain_no_line() -> None:
    """They are found for the case as a whole only."""
    mixed = Clue(rule="isolation", hint="mixed", circumstances=frozenset({SEVERAL_TARGETS}))
    table, symptom, two = ClueTable([mixed, _ANY]), differing("counters"), comparison(engines=2)

    assert best_clue([symptom], two, table, _NO_PATTERNS) == (symptom, mixed)
    assert best_clue([symptom], comparison(), table, _NO_PATTERNS) == (symptom, _ANY)
    assert clue_alone(symptom, two, table, _NO_PATTERNS) is _ANY


def test_the_look_up_leaves_few_entries_of_the_largest_table() -> None:
    """That is why it is looked up: they are tried for every symptom of every case."""
    table = ClueTable(lab().clues)
    facets = {facet for clue in table.clues for facet in clue.facets}
    kinds = {kind for clue in table.clues for kind in clue.kinds}
    seen = {(facet, "") for facet in facets} | {("", kind) for kind in kinds}
    sizes = [len(table.possible(call, *rest)) for call, rest in product(lab().grammar.operations, seen)]

    assert max(sizes) < len(table.clues) / 4
