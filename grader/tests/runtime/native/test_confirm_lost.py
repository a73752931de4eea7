"""What Valgrind saw lost counts, for the rules of the calls that allocated it."""

from __future__ import annotations

from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.comparison import Comparison
from grader.runtime.memory_faults import Checked, Unfreed
from grader.runtime.native.leaks import confirm_lost
from grader.tests.support.programs import by_hand, made


def confirmed(left: int, unreported: int, **by_function: int) -> Comparison:
    """Return the comparison of a right case of which Valgrind says this."""
    case = made("one", "create_sequence 1 5 -> seq; llm_destroy -> 0", rule="traversal")
    unfreed = Unfreed(cases=(0,), unreported=unreported, by_function=by_function)
    checked = Checked(
        tool="Valgrind",
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
    (comparison,) = confirm_lost([compare(by_hand(case), lab().model)], checked)
    return comparison


def test_a_case_that_lost_nothing_is_as_it_was() -> None:
    """Neither natively nor under Valgrind."""
    comparison = confirmed(0, 0)

    assert (comparison.lost, comparison.deviations) == (0, ())


def test_what_is_left_under_valgrind_is_lost_though_nothing_was_reported_natively() -> None:
    """And so is what Valgrind alone lists."""
    assert confirmed(2, 0).lost == 2
    assert confirmed(0, 3).lost == 3


def test_memory_of_the_engine_alone_is_no_matter_of_its_tables() -> None:
    """Which call allocated it, Valgrind's stack says; a helper whose caller is not on the stack says nothing."""
    rule = lab().rubric.rule("traversal")

    assert confirmed(0, 1, llm_init=1).facets(rule) == set()
    assert confirmed(0, 1, create_sequence=1).facets(rule) == {"heap"}
    assert confirmed(0, 1, new_table=1).facets(rule) == {"heap"}
