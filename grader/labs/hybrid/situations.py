"""The situation of a call of the hybrid allocator, in the words that known mistakes name, from the states around it.

What the sentence that decided says already has no word of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import lcm
from typing import Any

from reference.hybrid.fit import POLICIES
from reference.hybrid.kinds import KINDS
from reference.operation import Operation, Reply

State = Mapping[str, Any]


def circumstances(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield the words for a call."""
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
    """Which groups were asked for a hit, and how long it is."""
    _, groups, _ = before["settings"]
    if len(groups) == 1:
        yield "one-group"
    yield from (kind for kind, _, _ in groups)
    if tokens and tokens + _alignment(before) == len(text):
        yield "all-but-the-last"


def _allocated(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """What a call for room released and took, which hits it got, and how far it caches."""
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
