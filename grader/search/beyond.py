"""Beyond the cases: what a search adds to a verdict, for the reader of a report. It never costs a point.

Where every case passes, the transitions of the lab's small engines are checked: every call in every state that calls
lead to, or in the first some hundreds of these states.
Where a public case fails, the submission's own smallest trace is sought that fails in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from grader.assignment.lab import Lab
from grader.assignment.stored import stored
from grader.core.case import Case
from grader.core.closure import Closure, Covering, closure_of, covering_of
from grader.core.record import SmallestTrace
from grader.core.verdict import Advice
from grader.search.hunt import fails, shrink
from grader.search.player import FailingTrace, TracePlayer
from reference.operation import Operation

Explored = Closure | Covering
"""A closure to walk through, or traces that go through all transitions."""

_NO_CASE = "Every case passes, but your program goes wrong in these calls, which costs no point"
_SECONDS = 2.0
"""For a smaller trace; what was reached until then is shown."""
_MOST_STATES = 24
"""The number of states that are looked at for the trace that shows the difference: those with the shortest ways."""
_MOST_SUSPECTS = 1500
"""The number of transitions that are looked at in the same way where there are no states, but traces that fail."""


def load_closure(lab: Lab, progress: Callable[[int], None] = lambda _: None) -> Explored | None:
    """Return the transitions of a lab's small engines, explored once for a state of the code; None if it has no engine.

    To explore a closure takes some ten seconds; `progress` is called with the number of states that were explored.
    """
    smalls = lab.smalls()
    if not smalls:
        return None

    def explored() -> Explored:
        return covering_of(smalls, lab.model) if lab.runtime.plays_generated else closure_of(smalls[0], progress)

    return stored("closures", lab.name, list, explored)


def checked(player: TracePlayer, explored: Explored) -> tuple[str, tuple[Advice, ...]]:
    """Return a sentence on a program that does right in all transitions, or advice on where it does not.

    Both are empty where nothing can be said: the program has more memory than can be kept for each state, or what was
    seen differs from what was expected in nothing that is wrong.
    """
    if isinstance(explored, Closure):
        sentence, failing = _walked(player, explored)
    else:
        sentence, failing = _covered(player, explored)
    return sentence, (_advice(failing),) if failing is not None else ()


def _walked(player: TracePlayer, closure: Closure) -> tuple[str, FailingTrace | None]:
    walked = player.lab.runtime.walk(player.work, player.program, closure)
    if walked is None or not walked.fits:
        return "", None
    if walked.sums is None:
        return "", _first(player, [closure.trace(walked.state, walked.call)])
    if walked.sums == closure.sums:
        opening, *calls = closure.calls
        return (
            f"All {closure.transitions:,} transitions of a small engine agree: after {opening}, {len(calls)} calls in "
            f"each of the {len(closure):,} states that they lead to."
        ), None
    pairs = zip(walked.sums, closure.sums, strict=True)
    ways = [closure.trace(state) for state, (actual, right) in enumerate(pairs) if actual != right]
    ways = sorted(ways, key=len)[:_MOST_STATES]
    return "", _first(player, [[*way, call] for way in ways for call in closure.calls[1:]])


def _covered(player: TracePlayer, covering: Covering) -> tuple[str, FailingTrace | None]:
    differing = player.differing(covering.generated)
    if not differing:
        return (
            f"All {covering.transitions:,} transitions of {covering.engines} small engines agree: the calls that are "
            f"tried in each of {covering.states:,} states."
        ), None
    failing = _first(player, covering.suspects(differing)[:_MOST_SUSPECTS])
    if failing is None:  # what is wrong needs a longer way than the shortest
        failing = _first(player, [covering.generated.traces[place] for place in differing[:_MOST_STATES]])
        failing = _shrunk(player, failing) if failing is not None else None
    return "", failing


def _first(player: TracePlayer, traces: Iterable[Sequence[Operation]]) -> FailingTrace | None:
    """Return the first that fails; what fails only together with other states or traces does not."""
    cases = [case for case in map(player.case, traces) if case is not None]
    return next((failing for _, failing in player.failing(cases)), None)


def _shrunk(player: TracePlayer, failing: FailingTrace) -> FailingTrace:
    """Return a smaller trace that fails alike: the smallest that is reached in the time for it."""
    started = time.monotonic()
    return shrink(player, failing, lambda: time.monotonic() - started > _SECONDS)


def _advice(failing: FailingTrace) -> Advice:
    calls = "; ".join(map(str, failing.operations))
    return Advice(kind="closure", message=f"{_NO_CASE}: {calls}: {failing.sentence}")


def smallest(player: TracePlayer, case: Case) -> SmallestTrace | None:
    """Return the smallest trace that fails as this case does; None where the case does not fail when played again."""
    failing = fails(player, case)
    if failing is None:
        return None
    failing = _shrunk(player, failing)
    return SmallestTrace(
        case=case.name,
        calls=tuple(map(str, failing.operations)),
        sentence=failing.sentence,
        is_smallest=failing.is_smallest,
    )
