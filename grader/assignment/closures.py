"""The closure of a lab's small engine: it is explored once for a state of the code, and stored between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from grader.assignment import stored
from grader.assignment.lab import Lab
from grader.core.closure import Closure, closure_of
from grader.core.errors import GraderError


def load_closure(lab: Lab, progress: Callable[[int], None] = lambda _: None) -> Closure | None:
    """Return the closure; None where the lab has no small engine.

    To explore it takes some ten seconds; `progress` is called with the number of states that were explored.
    """
    if lab.small is None:
        return None
    try:
        place = stored.place_of("closures", hashlib.sha256(lab.name.encode()))
    except (OSError, GraderError):
        return closure_of(lab.small(), progress)
    closure: Closure | None = stored.read(place)
    if closure is None:
        closure = closure_of(lab.small(), progress)
        stored.write(place, closure)
    return closure
