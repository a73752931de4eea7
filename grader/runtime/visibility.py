"""Public and hidden cases never share a process: what a program prints or keeps there would tell of the hidden ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grader.core.case import Case
from grader.core.verdict import Visibility


def by_visibility(cases: Sequence[Case], numbers: Iterable[int]) -> list[list[int]]:
    """Split these case numbers into the public and then the hidden ones: a process may have either, not both."""
    parts: dict[Visibility, list[int]] = {visibility: [] for visibility in Visibility}
    for number in numbers:
        parts[cases[number].visibility].append(number)
    return [part for part in (parts[Visibility.PUBLIC], parts[Visibility.HIDDEN]) if part]
