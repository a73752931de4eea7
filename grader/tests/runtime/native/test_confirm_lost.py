"""What Valgrind saw lost counts, for the rules of the calls that allocated it."""

from __future__ import annotations

from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import BlockEvent, HeapEvent
from grader.runtime.native.symptoms import HeapUse, confirm_lost, heap_use
from grader.runtime.native.valgrind.memory_faults import Checked, Unfreed
from grader.tests.support.programs import by_hand, first_case, made, observed


def confirmed(left: int, unreported: int, **by_function: int) -> HeapUse:
    """Return what a right case lost of which Valgrind says this."""
    case = made("one", "create_sequence 1 5 -> seq; llm_destroy -> 0", rule="traversal")
    unfreed = Unfreed(cases=(0,), unreported=unreported, by_function=by_function)
    checked = Checked(
        asked=1,
        errors=(),
        counted={},
        stopped={},
        hung={},
        diverged={},
        unchecked=(),
        left={0: left},
        unfreed=(unfreed,),
    )
    comparison = compare(by_hand(case), lab().model)
    (use,) = confirm_lost([comparison], [heap_use(comparison)], checked)
    return use


def test_what_is_left_under_valgrind_is_lost_though_nothing_was_reported_natively() -> None:
    """And so is what Valgrind alone lists."""
    assert confirmed(2, 0).lost == 2
    assert confirmed(0, 3).lost == 3


def test_memory_of_the_engine_alone_is_no_matter_of_its_tables() -> None:
    """Which call allocated it, Valgrind's stack says; a helper whose caller is not on the stack says nothing."""
    rule = lab().rubric.rule("traversal")

    assert not rule.counts_made_by(confirmed(0, 1, llm_init=1).lost_from)
    assert rule.counts_made_by(confirmed(0, 1, create_sequence=1).lost_from)
    assert rule.counts_made_by(confirmed(0, 1, new_table=1).lost_from)


def test_what_was_never_freed_is_counted_at_the_end() -> None:
    """Only for a case that came to its end: a crash has other worries."""
    lost = [BlockEvent(HeapEvent.LIVE, 6, 1, 64, 0, 0)] * 3
    whole, crashed = by_hand(first_case()), by_hand(first_case())
    whole.events = crashed.events = lost
    del crashed.steps[4:]
    observations = observed(*(compare(one, lab().model) for one in (whole, crashed)))

    assert [use.lost for use in observations.uses] == [3, 0]
    assert [
        (number, symptom.kind, symptom.facet) for number, own in observations.symptoms.items() for symptom in own
    ] == [(0, "leak", "heap")]
