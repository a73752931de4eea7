"""What a lab gives to the runtime where programs report something else than states, such as the log of a device.

A function of the lab makes states of it, in the grader's process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.operation import Operation


@dataclass(frozen=True, slots=True)
class DerivedStep:
    """An operation: the record that is judged, and the submission's lines behind the parts of its state."""

    record: dict[str, Any]
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the name that a part has in the state."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What pictures show besides; nothing of it is judged."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A case, as far as it can be judged."""

    steps: Sequence[DerivedStep]
    stopped: str = ""
    """Why the operation behind the last step cannot be judged; "" where all can."""
    lines: tuple[int, ...] = ()
    """The submission's lines that this is about."""


Derive = Callable[[Sequence[Operation], Sequence[Mapping[str, Any]]], Derived]
"""Makes the records that are judged of the operations of a case and the records that a program sent. These may be
anything: whatever is wrong with them is a step's or `Derived.stopped`, never an exception."""
