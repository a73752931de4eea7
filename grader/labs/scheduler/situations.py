"""The situation of a call of the scheduler, in the words that known mistakes name, from the states around it.

What the sentence that decided says already has no word of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from reference.block_pool.requests import hash_block_tokens
from reference.operation import Operation, Reply

State = Mapping[str, Any]


def circumstances(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield the words for a call."""
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
    """The tokens of a request, prompt and output."""
    return [*state["given"][request][0], *state["req"][request][3]]


def _hits(state: State, request: str) -> bool:
    """Whether a request would get a cached block."""
    tokens, size = _tokens(state, request), state["settings"][1]
    return len(tokens) > size and hash_block_tokens(None, tokens[:size], None) in state["pool"]["index"]


def _scheduled(before: State, calls: Sequence[Any], resumed: list[str], preempted: list[str]) -> Iterator[str]:
    """What a step did: who was put out for whom, and who was admitted with how many tokens."""
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
