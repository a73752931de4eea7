"""What Valgrind saw lost counts, for the rules of the calls that allocated it."""

from __future__ import annotations

from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.symptoms import HeapUse, confirm_lost, heap_use
from grader.runtime.native.valgrind.memory_faults import Checked, Unfreed
from grader.tests.support.programs import by_hand, made


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
