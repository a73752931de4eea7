"""The labs that can be graded. To add an assignment, add a module and a line in `LABS`."""

from __future__ import annotations

from collections.abc import Callable

from grader.assignment.lab import Lab
from grader.labs.paged_kv.lab import lab as paged_kv

__all__ = ["DEFAULT", "LABS"]

LABS: dict[str, Callable[[], Lab]] = {
    "paged_kv": paged_kv,
}

DEFAULT = "paged_kv"
