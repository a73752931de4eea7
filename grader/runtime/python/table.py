"""What a lab gives to the runtime: the Python texts that construct, call and read a student's objects.

The harness executes these texts, and a student reads the same texts in a reproduction. Where programs report something
else than states, such as a log, the lab also gives a function that makes states of it, in the grader's process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.core.case import EVERY
from reference.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTable:
    """How the operations of case files become Python."""

    setup: str
    """The imports of what the submission must define: "from shelf import Shelf"."""
    calls: Mapping[str, str]
    """For each operation the statements that do it. The last one, if it is an expression, is the reply; parameters
    have the names of the operation's arguments."""
    parameters: Mapping[str, tuple[str, ...]]
    takes: Mapping[str, str] = field(default_factory=dict)
    """What an argument of this name stands for, with {} for its value: "[block[{}]]" takes a list, "block[{}]" one."""
    gives: Mapping[str, str] = field(default_factory=dict)
    """How the reply of this operation is read: by identity, as places in what the argument of that name is taken from;
    or by a function of `defines`. Others must be plain values."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """For each part of the state the expression that reads it. `place_of(object, among)` and
    `places_of(objects, among)` name objects by identity; `calls_of(MODULE)` returns the calls on a given module since
    it was read last."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The name in the state that each facet is in; one that is not in `reads` was derived (see `Derive`)."""
    defines: str = ""
    """Functions that calls and reads use, executed after `setup`."""
    every: int = EVERY
    """Of random traces the state is read after so many operations."""
    errors: tuple[str, ...] = ()
    """The names of the built-in error classes by which calls refuse. A subclass counts as the class above it."""

    @property
    def module(self) -> str:
        """The module that students submit."""
        return self._imports[0].module or ""

    @property
    def demanded(self) -> tuple[str, ...]:
        """The names that it must define."""
        return tuple(alias.name for node in self._imports for alias in node.names)

    @property
    def defined(self) -> frozenset[str]:
        """The functions that `defines` defines."""
        return frozenset(node.name for node in ast.parse(self.defines).body if isinstance(node, ast.FunctionDef))

    @property
    def _imports(self) -> list[ast.ImportFrom]:
        return [node for node in ast.parse(self.setup).body if isinstance(node, ast.ImportFrom)]

    def calling(self, names: Collection[str]) -> frozenset[str]:
        """Return the operations whose statements call something of these names."""
        return frozenset(
            operation
            for operation, text in self.calls.items()
            if any(called in names for called in re.findall(r"(\w+)\(", text))
        )


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
