"""The protocol of reference engines whose states are plain values: do an operation, return and take over a state.

An engine is read next to its document: it is plain data and a method for each operation, named as in a case file.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reference.operation import Operation, Reply, Trace

Plain = None | bool | int | float | str | Sequence["Plain"] | dict[str, "Plain"]
"""A value as JSON has it."""


class CannotGoOn(Exception):
    """The document does not say what follows a state, such as one that a program reported. The message says why."""


class CannotPoke(Exception):
    """A poke does not fit the state."""


class Refused(Exception):
    """A document forbids a call. `reply` is what the caller gets: the name of an error class, or a value as JSON.

    Only refusals have this class, so that an error of the engine itself never passes for one. `sentence` is the name of
    the sentence of the document that forbids the call.
    """

    def __init__(self, reply: str, sentence: str = "") -> None:
        super().__init__(reply)
        self.reply = reply
        self.sentence = sentence


class Oracle(Protocol):
    """A reference engine."""

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotGoOn` if the document does not say what comes next."""

    def state(self) -> dict[str, Plain]:
        """Return all that the document says about the state. Each call returns new values."""

    def restore(self, state: dict[str, Plain]) -> None:
        """Set the state to one that `state` describes. Raises `CannotGoOn` with the reason if that is impossible."""


OracleFactory = Callable[[Trace], Oracle]
"""Makes the oracle for one trace."""

Generator = Callable[[int, int], Sequence[Operation]]
"""Makes the random trace of a seed and a length."""


class Engine(ABC):
    """An oracle with one method for each operation, which takes the operation's arguments and returns a plain value.

    A method refuses by raising `Refused`, before it changes anything but what the document lets a refused call change.
    `because` says which sentence of the document decides a call that is accepted.
    """

    _sentence = ""

    def apply(self, operation: Operation) -> Reply:
        """Call the method of the operation's name."""
        self._sentence = ""
        try:
            value = getattr(self, operation.name)(*operation.arguments)
        except Refused as refusal:
            return Reply(text=refusal.reply, refused=True, clause=refusal.sentence or self._sentence)
        return Reply(text=text_of(value), clause=self._sentence)

    def because(self, sentence: str) -> None:
        """Note the name of the sentence that decides this call."""
        self._sentence = sentence

    @abstractmethod
    def state(self) -> dict[str, Plain]:
        """Return all that the document says about the state."""

    @abstractmethod
    def restore(self, state: dict[str, Plain]) -> None:
        """Take over a state."""


def function(sentence: str, call: Callable[..., Plain]) -> Callable[..., Plain]:
    """Return a method that calls `call`, a function that the document's sentence `sentence` defines."""

    def operation(engine: Engine, *arguments: Any) -> Plain:
        engine.because(sentence)
        return call(*arguments)

    return operation


def text_of(value: Plain) -> str:
    """Return a value as replies and case files write it: JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
