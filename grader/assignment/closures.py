"""The transitions of a lab's small engines: they are explored once for a state of the code, and stored between runs."""

from __future__ import annotations

from collections.abc import Callable

from grader.assignment.lab import Lab
from grader.assignment.stored import stored
from grader.core.closure import Closure, closure_of
from grader.core.covering import Covering, covering_of

Explored = Closure | Covering
"""A closure to walk through, or traces that go through all transitions."""


def load_closure(lab: Lab, progress: Callable[[int], None] = lambda _: None) -> Explored | None:
    """Return what was explored; None where the lab has no small engine.

    To explore a closure takes some ten seconds; `progress` is called with the number of states that were explored.
    """
    smalls = lab.smalls()
    if not smalls:
        return None

    def explored() -> Explored:
        return covering_of(smalls, lab.model) if lab.runtime.plays_generated else closure_of(smalls[0], progress)

    return stored("closures", lab.name, list, explored)
