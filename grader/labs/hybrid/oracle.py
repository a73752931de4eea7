"""The oracle of the hybrid allocator: the engine with what its caller does, and the situations of calls.

Known mistakes name a situation by its word. A situation has no word if the sentence that decided the call implies it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import lcm
from typing import Any

from reference.hybrid import Hybrid
from reference.hybrid.fit import POLICIES
from reference.hybrid.kinds import KINDS
from reference.hybrid.manager import Tables
from reference.operation import Operation, Reply
from reference.oracle import CannotGoOn

State = Mapping[str, Any]


class HybridOracle(Hybrid):
    """The engine and its caller, who passes hits only for requests without blocks, and may empty lists after calls."""

    def __init__(self) -> None:
        super().__init__()
        self.spoils = False  # whether the caller empties lists
        self.taken_over: set[str] = set()  # the requests with tables in the state that was taken over

    def admit(self, request: str, tokens: int) -> Tables:
        """Do the engine's `admit`. Raises `CannotGoOn` if the request has blocks, unless a restored state gave them."""
        if request in self.tables and request not in self.taken_over:
            raise CannotGoOn(f"what match {request} returned is only passed while {request} holds nothing")
        return super().admit(request, tokens)

    def spoil(self) -> None:
        """From now on the caller empties every list and dict after the call that took or returned it."""
        self.because("Constraint 5/lists")
        self.spoils = True

    def state(self) -> dict[str, Any]:
        """Return the state of the engine, what the caller knows, and that the arguments are unchanged."""
        return super().state() | {"spoils": self.spoils, "intact": True}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        super().restore(state)
        self.spoils, self.taken_over = state["spoils"], set(self.tables)


def circumstances(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield the words for the situation of a call."""
    arguments: Any = operation.arguments
    if after["spoils"]:
        yield "spoiled"
    match operation.name:
        case "manager" if any(kind not in KINDS for kind, _, _ in arguments[1]):
            yield "bad-kind"
        case "match":
            yield from _matched(before, json.loads(reply.text)[1], before["requests"][arguments[0]][0])
        case "admit" | "step":
            yield from _allocated(before, operation, reply, after)
        case "free" | "preempt" if not any(before["tables"].get(arguments[0], ())):
            yield "without-blocks"
        case "free_page" | "release" | "reuse" if reply.clause == "Part 2/wrong-state":
            yield from () if str(arguments[1]) in before["slots"][arguments[0]] else ("no-such-slot",)
        case "fit":
            yield arguments[0] if arguments[0] in POLICIES else "unknown-policy"


def _alignment(state: State) -> int:
    return lcm(*(size for _, size, _ in state["settings"][1]))


def _matched(before: State, tokens: int, text: str) -> Iterator[str]:
    """Yield words for the kinds of the groups that were asked for a hit, and for a hit of the greatest length."""
    _, groups, _ = before["settings"]
    if len(groups) == 1:
        yield "one-group"
    yield from (kind for kind, _, _ in groups)
    if tokens and tokens + _alignment(before) == len(text):
        yield "all-but-the-last"


def _allocated(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield words for what an allocation released and took, which hits it got, and whether its last block is cached."""
    request = str(operation.arguments[0])
    hits = [block for blocks in before["looked"][1] for block in blocks if block] if operation.name == "admit" else []
    if any(str(block) not in before["ref"] for block in hits):
        yield "hits-in-the-queue"
    pairs = zip(before["tables"].get(request, ()), after["tables"].get(request, ()), strict=False)
    released = {block for old, new in pairs for block, now in zip(old, new, strict=False) if block and not now}
    if released:
        yield "released"
    if reply.refused:
        return
    if hits:
        yield "hits"
    if any(block in released for blocks in json.loads(reply.text) for block in blocks):
        yield "takes-released"
    if before["settings"][2] and after["requests"][request][2] % _alignment(before):
        yield "cut-off"
