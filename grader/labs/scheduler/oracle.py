"""The oracle of the scheduler: the engine with what its caller does, and the situations of calls.

Known mistakes name situations by words. A situation has no word if the sentence that decided the call says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from reference.block_pool.requests import hash_block_tokens
from reference.operation import Operation, Reply
from reference.oracle import CannotGoOn
from reference.scheduler import Scheduler

State = Mapping[str, Any]


class SchedulerOracle(Scheduler):
    """The engine and its caller: `schedule` and `update` alternate, and the caller may empty the results."""

    def __init__(self) -> None:
        super().__init__()
        self.spoiled = False  # whether the caller emptied what the last `schedule` returned
        self.awaits_update = False  # whether `update` must follow the last `schedule`; False after `restore`
        self.intact = True  # whether arguments are as before, and results as they were returned

    def schedule(self) -> list[Any]:
        """Do one step. Raises `CannotGoOn` if the last step has had no `update`."""
        if self.awaits_update:
            raise CannotGoOn("update is called once after each schedule")
        self.awaits_update, self.spoiled = True, False
        return super().schedule()

    def update(self) -> list[str]:
        """Do the engine's `update`, and note that the step is over."""
        self.awaits_update = self.spoiled = False
        return super().update()

    def reset(self, preempt_running: bool) -> bool:
        """Do the engine's `reset`. Raises `CannotGoOn` between `schedule` and `update`."""
        if self.awaits_update:
            raise CannotGoOn("reset_prefix_cache is never called between schedule and update")
        return super().reset(preempt_running)

    def spoil(self) -> None:
        """Note that the caller empties the last result."""
        self.because("Constraint 7/results")
        self.spoiled = bool(self.scheduled)

    def state(self) -> dict[str, Any]:
        """Return the state of the engine, and what the caller knows."""
        return super().state() | {"spoiled": self.spoiled, "intact": self.intact}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to one that `state` returned or the driver read."""
        super().restore(state)
        self.spoiled, self.intact, self.awaits_update = state["spoiled"], state["intact"], False


def circumstances(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield the words for the situation of a call."""
    arguments: Any = operation.arguments
    match operation.name:
        case "add" if reply.clause == "Task 1/empty":
            yield "no-output" if arguments[1] else "empty-prompt"
        case "add" if not reply.refused:
            yield from ("again",) if arguments[0] in before["req"] else ()
            yield before["settings"][6]
        case "schedule":
            yield from _scheduled(before, after["calls"], *json.loads(reply.text)[2:4])
            if reply.clause == "Task 2/reserve-full" and _hits(after, after["waiting"][0]):
                yield "hits"
        case "reset" if not {*before["scheduled"]}.isdisjoint(set(before["running"]) - set(after["running"])):
            yield "refund"
        case "update":
            yield from ("spoiled",) if before["spoiled"] else ()
            for request, tokens in before["scheduled"].items():
                if request in before["running"] and before["req"][request][1] + tokens < len(_tokens(before, request)):
                    yield "partial"
        case "simulate" if arguments[0] == "paged":
            yield "paged"


def _tokens(state: State, request: str) -> list[int]:
    """Return the tokens of a request, prompt and output."""
    return [*state["given"][request][0], *state["req"][request][3]]


def _hits(state: State, request: str) -> bool:
    """Return whether a request would get a cached block."""
    tokens, size = _tokens(state, request), state["settings"][1]
    return len(tokens) > size and hash_block_tokens(None, tokens[:size], None) in state["pool"]["index"]


def _scheduled(before: State, calls: Sequence[Any], resumed: list[str], preempted: list[str]) -> Iterator[str]:
    """Yield words for `circumstances` in mistakes.toml: about preempted requests, and about admitted ones."""
    if preempted:
        yield before["settings"][6]
    for (failed, request, *_), (freed, victim, *_) in pairwise(calls):
        if failed == "none" and freed == "free":
            yield "self" if victim == request else "other"
    for place, (call, request, *numbers) in enumerate(calls):
        if call == "free" and any(earlier[:2] == ["alloc", request] for earlier in calls[:place]):
            yield "refund"
        elif call != "free" and request not in before["running"]:
            tokens, hits = numbers
            yield from ("hits",) if hits else ()
            yield from ("part",) if tokens < len(_tokens(before, request)) - hits * before["settings"][1] else ()
    if resumed:
        yield "resumed"
