"""Values of a parameter of which `scripts/test` tries few, and `scripts/test --all` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the values, those behind the first ones for `scripts/test --all` only."""
    return [
        value if place < count else pytest.param(value, marks=pytest.mark.thorough)
        for place, value in enumerate(values)
    ]
