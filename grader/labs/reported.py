"""Read what a program reported, which may be anything: what is not of the expected type is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Described = Mapping[str, Any]
"""A decoded record, of a program or of the reference."""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a dict as it is, nothing for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a list as it is, nothing for anything else."""
    return value if isinstance(value, list) else []


def state_of(record: Described, name: str) -> object:
    """Return a part of the state of a record; None where there is none."""
    return as_mapping(record.get("state")).get(name)


def reply_of(record: Described) -> object:
    """Return what the call returned; None where it raised."""
    return as_mapping(record.get("reply")).get("returned")
