"""The first entry of the table that fits is used, whichever symptom it fits; a look-up leaves out none that fits."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from grader.assignment.lab import SEVERAL_TARGETS, Mistake
from grader.core.judgement import UNREAD, Difference
from grader.core.verdict import Verdict
from grader.judge.calls import Patterns
from grader.judge.compare import compare
from grader.judge.evidence import Evidence
from grader.judge.mistakes import MistakeTable, best_mistake, mistake_alone
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import Comparison
from grader.runtime.native.native_played import NativePlayed
from grader.tests.support.programs import expected_records, made, told

_CREATE = 1
"""The operation of the case that goes wrong."""

_COUNTS = Mistake(rule="free-count", hint="counts", facets=frozenset({"counters"}))
_CREATES = Mistake(rule="ref-count", hint="creates", calls=frozenset({"create_sequence"}), tags=frozenset({"too-low"}))
_FORKS = Mistake(rule="cow", hint="forks", calls=frozenset({"fork_sequence"}))
_CRASHES = Mistake(rule="memory-error", hint="crashes", kinds=frozenset({"crash"}))
_ANY = Mistake(rule="list", hint="any")


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

    for mistakes in permutations([_COUNTS, _CREATES, _FORKS]):
        cause, mistake = best_mistake(shuffled, comparison(), MistakeTable(mistakes), _NO_PATTERNS)
        first = next(each for each in mistakes if each is not _FORKS)

        assert (cause, mistake) == (symptoms[0] if first is _CREATES else symptoms[1], first)


def test_of_symptoms_that_an_entry_fits_the_first_is_the_cause() -> None:
    """They come in the order of the record."""
    symptoms = [differing("list"), differing("counters"), differing("ref_count")]

    assert best_mistake(symptoms, comparison(), MistakeTable([_ANY]), _NO_PATTERNS) == (symptoms[0], _ANY)


def test_a_reply_comes_before_the_state_and_the_state_before_memory() -> None:
    """Whatever the order of the table."""
    symptoms = [crashing(), differing("counters"), differing("reply")]

    for table in (MistakeTable([_CRASHES, _COUNTS, _ANY]), MistakeTable([_ANY])):
        assert best_mistake(symptoms, comparison(), table, _NO_PATTERNS) == (symptoms[2], _ANY)
    assert best_mistake(symptoms, comparison(), MistakeTable([_CRASHES, _COUNTS]), _NO_PATTERNS) == (
        symptoms[1],
        _COUNTS,
    )
    assert best_mistake(symptoms, comparison(), MistakeTable([_FORKS, _CRASHES]), _NO_PATTERNS) == (
        symptoms[0],
        _CRASHES,
    )


def test_without_an_entry_the_rule_is_that_of_the_case() -> None:
    """And the most telling symptom is the cause."""
    symptoms = [crashing(), differing("counters")]
    cause, mistake = best_mistake(symptoms, comparison(), MistakeTable([_FORKS]), _NO_PATTERNS)

    assert cause is symptoms[1]
    assert mistake is not None
    assert (mistake.rule, mistake.hint) == (comparison().case.rule, "{wanted}")


def test_what_could_not_be_read_fits_entries_for_it_only() -> None:
    """It says nothing about what a call does to the value, so no other hint would be true."""
    symptom, unread = differing("counters", UNREAD), Mistake(rule="list", hint="unread", tags=frozenset({UNREAD}))
    _, mistake = best_mistake([symptom], comparison(), MistakeTable([_COUNTS, _ANY]), _NO_PATTERNS)

    assert mistake is not None
    assert mistake.rule == comparison().case.rule
    assert "spelt as there" in mistake.hint
    assert best_mistake([symptom], comparison(), MistakeTable([_COUNTS, unread]), _NO_PATTERNS) == (symptom, unread)


@pytest.mark.parametrize("word", ["actual", "expected", "field", "wanted"])
def test_a_hint_about_a_value_fits_no_crash(word: str) -> None:
    """Its words would be empty."""
    table = MistakeTable([Mistake(rule="list", hint=f"It must be {{{word}}}."), _ANY])

    assert best_mistake([crashing()], comparison(), table, _NO_PATTERNS)[1] is _ANY
    assert best_mistake([differing("counters")], comparison(), table, _NO_PATTERNS)[1] is table.mistakes[0]


def test_entries_of_several_targets_explain_no_line() -> None:
    """They are found for the case as a whole only."""
    mixed = Mistake(rule="isolation", hint="mixed", circumstances=frozenset({SEVERAL_TARGETS}))
    table, symptom, two = MistakeTable([mixed, _ANY]), differing("counters"), comparison(engines=2)

    assert best_mistake([symptom], two, table, _NO_PATTERNS) == (symptom, mixed)
    assert best_mistake([symptom], comparison(), table, _NO_PATTERNS) == (symptom, _ANY)
    assert mistake_alone(symptom, two, table, _NO_PATTERNS) is _ANY


def test_the_look_up_leaves_few_entries_of_the_largest_table() -> None:
    """That is why it is looked up: they are tried for every symptom of every case."""
    table = MistakeTable(lab().mistakes)
    facets = {facet for mistake in table.mistakes for facet in mistake.facets}
    kinds = {kind for mistake in table.mistakes for kind in mistake.kinds}
    seen = {(facet, "") for facet in facets} | {("", kind) for kind in kinds}
    sizes = [len(table.possible(call, *rest)) for call, rest in product(lab().grammar.operations, seen)]

    assert max(sizes) < len(table.mistakes) / 4
