"""What all wrong calls share and no right one: said only with evidence, and of public cases only."""

from __future__ import annotations

from grader.judge.calls import JudgedCall, Patterns
from grader.labs.paged_kv.lab import lab
from grader.tests.support.programs import by_hand, changed, graded_text, judged, made
from reference.operation import Reply

_ACCEPTED = Reply(text="seq")
_REFUSED = Reply(text="NULL", refused=True, clause="Task 2/no-room")
_ORDER = {"exact-fit": "all fit", "id-zero": "the id is 0"}


def calls(count: int, *words: str, wrong: bool, expected: Reply = _ACCEPTED, refused: bool = False) -> list[JudgedCall]:
    """So many calls of create_sequence, each in a case of its own."""
    return [
        JudgedCall(
            case=number,
            name="create_sequence",
            words=frozenset(words),
            expected=expected,
            refused=refused,
            wrong=wrong,
        )
        for number in range(count)
    ]


def test_a_word_that_all_wrong_calls_share_and_no_right_one_is_told() -> None:
    """With the numbers of both."""
    patterns = Patterns([*calls(3, "exact-fit", wrong=True), *calls(40, "id-zero", wrong=False)], _ORDER)
    said = patterns.sentence(range(3), "create_sequence", frozenset(), _ACCEPTED)

    assert "all 3 such calls of create_sequence" in said
    assert "all fit" in said
    assert "none of 40" in said


def test_a_word_that_right_calls_have_too_tells_nothing() -> None:
    """One counterexample is enough."""
    right = [*calls(40, wrong=False), *calls(1, "exact-fit", wrong=False)]
    patterns = Patterns([*calls(3, "exact-fit", wrong=True), *right], _ORDER)

    assert patterns.sentence(range(3), "create_sequence", frozenset(), _ACCEPTED) == ""


def test_few_calls_are_no_evidence() -> None:
    """Three and four may differ by chance, and one alone differs in everything."""
    few = Patterns([*calls(3, "exact-fit", wrong=True), *calls(4, wrong=False)], _ORDER)
    one = Patterns([*calls(1, "exact-fit", wrong=True), *calls(400, wrong=False)], _ORDER)

    assert few.sentence(range(3), "create_sequence", frozenset(), _ACCEPTED) == ""
    assert one.sentence(range(1), "create_sequence", frozenset(), _ACCEPTED) == ""


def test_calls_that_must_fail_are_not_compared_with_those_that_must_work() -> None:
    """Else every refusal had its own reason in common."""
    refused = calls(3, "exact-fit", wrong=True, expected=_REFUSED)
    patterns = Patterns([*refused, *calls(40, wrong=False)], _ORDER)

    assert patterns.sentence(range(3), "create_sequence", frozenset(), _REFUSED) == ""


def test_a_call_that_never_works_is_known_only_if_it_was_asked_to() -> None:
    """A refusal that is right says nothing about it."""
    asked = Patterns(calls(2, wrong=True, refused=True), _ORDER)
    refused = Patterns(calls(2, wrong=False, expected=_REFUSED, refused=True), _ORDER)

    assert asked.never == {"create_sequence"}
    assert not refused.never


def test_hidden_cases_are_not_counted() -> None:
    """Their numbers would tell what they ask."""
    hidden = 'pool_blocks = 1; visibility = "hidden"'
    story = "create_sequence {0} 16 -> seq; free_sequence {0} -> 0"
    stories = [made(f"fits{number}", story.format(number), header="pool_blocks = 1") for number in range(3)]
    others = [made(f"room{number}", story.format(number)) for number in range(20)]
    secret = [made(f"secret{number}", story.format(number), header=hidden) for number in range(5)]
    source = changed(("required > engine->free_local_blocks", "required >= engine->free_local_blocks"))
    record = graded_text(source, *stories, *others, *secret)

    assert record.first_cause is not None
    assert record.first_cause.clause.startswith("Task 2: ")
    assert "exactly when as many blocks are needed as are free: off by one" in record.first_cause.hint
    assert record.first_cause.cases[0] == "made/fits0"


def test_every_situation_has_a_sentence_and_can_occur() -> None:
    """The words of the reference's situations are those that a hint may use."""
    chosen = lab()
    told = {
        word.removeprefix("only-") for mistake in chosen.mistakes for word in mistake.circumstances if "only-" in word
    }

    assert told - {"never"} <= set(chosen.situation_words)


def test_what_all_failing_cases_are_set_up_with_is_told() -> None:
    """It must be true of every failing case, and not of every case."""
    plain, falling = (
        made(name, "create_sequence 1 5 -> seq", header=f"pool_blocks = 4; heap_falls = {falls}", rule="free-count")
        for falls, name in enumerate(("plain", "falling"))
    )
    fails, fails_plain = (by_hand(case, (1, 6, 2)) for case in (falling, plain))
    told = [
        judged(*played)[0]
        .causes[0]
        .hint.endswith(
            " It goes wrong only in cases where each allocation lies at a lower address than the one before."
        )
        for played in ([fails, by_hand(plain)], [fails, fails_plain], [fails])
    ]

    assert told == [True, False, False]
