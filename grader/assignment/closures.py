"""The closure of a lab's small engine: it is explored once for a state of the code, and stored between runs."""

from __future__ import annotations

from collections.abc import Callable

from grader.assignment.lab import Lab
from grader.assignment.stored import stored
from grader.core.closure import Closure, closure_of


def load_closure(lab: Lab, progress: Callable[[int], None] = lambda _: None) -> Closure | None:
    """Return the closure; None where the lab has no small engine.

    To explore it takes some ten seconds; `progress` is called with the number of states that were explored.
    """
    small = lab.small
    if small is None:
        return None
    return stored("closures", lab.name, list, lambda: closure_of(small(), progress))
