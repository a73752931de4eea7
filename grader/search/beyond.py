"""Beyond the cases: what a search adds to a verdict, for the reader of a report. It never costs a point.

Where every case passes, the closure of the lab's small engine is checked: every call in every state that calls lead to.
Where a public case fails, the submission's own smallest trace is sought that fails in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.record import SmallestTrace
from grader.core.verdict import Advice
from grader.runtime.protocol import Walked
from grader.search.hunt import fails
from grader.search.player import FailingTrace, TracePlayer, explicit
from grader.search.shrink import shrink

_NO_CASE = "Every case passes, but your program goes wrong in these calls, which costs no point"
_MOST_STATES = 24
"""The number of states that are looked at for the trace that shows the difference: those with the shortest ways."""


def checked(player: TracePlayer, closure: Closure) -> tuple[str, tuple[Advice, ...]]:
    """Return a sentence on a program that does right in the whole closure, or advice on where it does not.

    Both are empty where the closure says nothing: the program has more memory than can be kept for each state, or its
    records differ from the expected ones in nothing that is wrong.
    """
    walked = player.lab.runtime.walk(player.work, player.program, closure)
    if walked is None or not walked.fits:
        return "", ()
    if walked.sums == closure.sums:
        opening, *calls = closure.calls
        return (
            f"All {closure.transitions:,} transitions of a small engine agree: after {opening}, {len(calls)} calls in "
            f"each of the {len(closure):,} states that they lead to."
        ), ()
    failing = next(_failing(player, closure, walked), None)
    return "", (_advice(failing),) if failing is not None else ()


def _failing(player: TracePlayer, closure: Closure, walked: Walked) -> Iterator[FailingTrace]:
    """Yield failing traces, those with the fewest calls first; what fails only together with other states is none."""
    if walked.sums is None:
        traces = [closure.trace(walked.state, walked.call)]
    else:
        pairs = zip(walked.sums, closure.sums, strict=True)
        ways = [closure.trace(state) for state, (actual, right) in enumerate(pairs) if actual != right]
        traces = [[*way, call] for way in sorted(ways, key=len)[:_MOST_STATES] for call in closure.calls[1:]]
    cases = [case for case in map(player.case, traces) if case is not None]
    for _, failing in player.failing(cases):
        yield failing


def _advice(failing: FailingTrace) -> Advice:
    calls = "; ".join(map(str, explicit(failing.case.trace.operations)))
    return Advice(kind="closure", message=f"{_NO_CASE}: {calls}: {failing.sentence}")


def smallest(player: TracePlayer, case: Case, late: Callable[[], bool]) -> SmallestTrace | None:
    """Return the smallest trace that fails as this case does; None where the case does not fail when played again."""
    failing = fails(player, case)
    if failing is None:
        return None
    failing = shrink(player, failing, late)
    calls = tuple(map(str, explicit(failing.case.trace.operations)))
    return SmallestTrace(case=case.name, calls=calls, sentence=failing.sentence)
