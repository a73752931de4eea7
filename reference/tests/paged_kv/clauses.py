"""The sentences of the handout, as handout.toml names them."""

from __future__ import annotations

import tomllib
from pathlib import Path

HANDOUT = Path(__file__).parents[3] / "cases" / "paged_kv" / "handout.toml"


def clauses() -> frozenset[str]:
    """Their names."""
    return frozenset(tomllib.loads(HANDOUT.read_text(encoding="utf-8"))["clauses"])
