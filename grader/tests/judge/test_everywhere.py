"""What is judged in every case: no point is lost without a finding, and none is earned by doing nothing."""

from __future__ import annotations

from dataclasses import replace

from grader.core.case import Case
from grader.judge.case_findings import case_findings
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import HELD, BlockEvent, Fault, HeapEvent, NativePlayed
from grader.tests.support.programs import by_hand, first_case, judged, made, observed
from grader.tests.support.raising import Raising


def counting(name: str, weight: int = 1) -> Case:
    """A case about free_local_blocks of this weight."""
    return made(name, "create_sequence 1 5 -> seq", header=f"pool_blocks = 4; weight = {weight}", rule="free-count")


def leaking(case: Case, *, allocated_by: int = 1) -> NativePlayed:
    """A case that loses what this operation, counted from 0, allocated."""
    played = by_hand(case)
    played.events.append(BlockEvent(HeapEvent.LIVE, HELD, allocated_by, 64, 0, 0))
    return played


def crashing(case: Case) -> NativePlayed:
    """A case that ends in its second operation."""
    played = by_hand(case)
    del played.steps[1:]
    played.fault = Fault(1, 11, 0, ())
    return played


def test_each_earns_its_share_of_the_cases_without_a_finding() -> None:
    """No weight counts there; a crash is a memory error and no leak."""
    _, scores = judged(
        leaking(counting("leaking", 9)), crashing(counting("crashing")), by_hand(first_case()), by_hand(first_case())
    )
    leak, memory = scores["leak"], scores["memory-error"]

    assert (leak.points, leak.passed, leak.cases, leak.withheld) == (4, 3, 4, 0)
    assert (memory.points, memory.passed, memory.withheld) == (3, 3, 0)


def test_lost_memory_of_unknown_origin_is_everybodys() -> None:
    """Of very many allocations the harness tells the number only."""
    case = made("many", "create_sequence 1 5 -> seq; llm_destroy -> 0", rule="traversal")
    played = by_hand(case)
    played.steps[-1] = replace(played.steps[-1], live=5000)
    rule = lab().rubric.rule("traversal")
    ((found,), _) = case_findings(observed(compare(played, lab().model)), lab(), optional=Raising())

    assert found.facets(rule) == {"heap"}
    assert found.facets(replace(rule, calls=frozenset({"free_sequence"}))) == set()
