"""The situation of a call of the block pool, in the words that known mistakes name, from the states around it.

What the sentence that decided says already has no word of its own.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from reference.block_pool.pool import NULL_BLOCK
from reference.block_pool.requests import Text
from reference.operation import Operation, Reply

State = Mapping[str, Any]


def circumstances(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield the words for a call."""
    call, arguments = operation.name, operation.arguments
    first: Any = arguments[0] if arguments else None
    returned = None if reply.refused else json.loads(reply.text)
    match call:
        case "new_with" | "append_tokens":
            yield from _extras(_text(after, first))
        case "write" if reply.clause != "Task 6/write-outside":
            position: Any = arguments[1]
            yield from _forked(before, before["tables"][first][position // before["sizes"][0]], returned)
        case "get_computed_blocks":
            yield from _looked_up(before, first)
        case "admit" | "step":
            yield from _looked_up(before, first) if call == "admit" else ()
            if not reply.refused or reply.clause == "Task 5/capacity":
                yield from _allocated(before, call, *arguments)  # type: ignore[arg-type]
            yield from _evicted(before, (returned[1] if call == "admit" else returned) if returned else ())
            yield from _cached(before, after)
        case "evict_blocks":
            yield from _evicted(before, () if reply.refused else first)
        case "cache_full_blocks":
            yield from () if before["caching"] else ("caching-off",)
            yield from _cached(before, after)
        case _:
            yield from _of_the_pool(before, call, first, returned)


def _of_the_pool(before: State, call: str, first: Any, returned: Any) -> Iterator[str]:
    """The words for a call whose `first` argument says it all."""
    match call:
        case "touch" if len(set(first)) < len(first):
            yield "twice"
        case "free_blocks" | "free_iterator" if NULL_BLOCK in first:
            yield "null-block"
        case "get_usage" if before["num_blocks"] == 1:
            yield "only-null"
        case "get_cached_block" if len(before["index"].get(first, ())) > 1:
            yield "several"
        case "get_new_blocks":
            yield from _evicted(before, returned or ())
        case "maybe_evict":
            yield from _evicted(before, [first])
        case "fork_block":
            yield from _forked(before, first, returned)


def _evicted(before: State, blocks: Iterable[int]) -> Iterator[str]:
    """Blocks that lose their hashes: whether they have any, and whether others have the same."""
    hashes = [before["hash"][block] for block in blocks if before["hash"][block] is not None]
    if hashes:
        yield "hashed"
    if any(len(before["index"].get(hash_, ())) > 1 for hash_ in hashes):
        yield "duplicate"


def _cached(before: State, after: State) -> Iterator[str]:
    """Whether a block got a hash that another one has."""
    pairs = zip(before["hash"], after["hash"], strict=True)
    if any(new is not None and new != old and len(after["index"][new]) > 1 for old, new in pairs):
        yield "duplicate"


def _forked(before: State, block: int, copy: int | None) -> Iterator[str]:
    users = before["ref"][block]
    yield "null-block" if block == NULL_BLOCK else "alone" if users == 1 else "shared" if users else "unused"
    yield from _evicted(before, () if copy is None else [copy])


def _text(state: State, request: str) -> Text:
    return Text.of(literal_eval(state["texts"])[request])


def _extras(text: Text) -> Iterator[str]:
    """What besides its tokens a request is made of."""
    words = {"lora": text.lora_name is not None, "salt": text.cache_salt is not None, "mm": bool(text.mm_features)}
    return (word for word, has in words.items() if has)


def _skips(before: State, request: str) -> bool:
    return "True" in before["texts"] and _text(before, request).skip_reading_prefix_cache


def _hits(before: State, request: str) -> tuple[list[str], int]:
    """The hashes of a request that are cached, from the front, and how many of them may hit."""
    tokens, _, hashes = before["requests"][request]
    if not before["caching"] or _skips(before, request):
        return [], 0
    return [*takewhile(before["index"].__contains__, hashes)], (tokens - 1) // before["sizes"][0]


def _looked_up(before: State, request: str) -> Iterator[str]:
    cached, most = _hits(before, request)
    words = {
        "caching-off": not before["caching"],
        "skip": before["caching"] and _skips(before, request),
        "cap": len(cached) > most,
        "hit": bool(cached[:most]),
        "several": any(len(before["index"][hash_]) > 1 for hash_ in cached[:most]),
    }
    return (word for word, holds in words.items() if holds)


def _allocated(before: State, call: str, request: str, more: int) -> Iterator[str]:
    """How many tokens are to get slots, and from which blocks."""
    cached, most = _hits(before, request) if call == "admit" else ([], 0)
    hits = [before["index"][hash_][0] for hash_ in cached[:most]]
    (size, longest), (tokens, computed, _) = before["sizes"], before["requests"][request]
    slots = computed + len(hits) * size + more
    new = max(-(-min(slots, longest) // size) - len(before["tables"].get(request, ())) - len(hits), 0)
    revived = sum(before["ref"][block] == 0 for block in hits)
    words = {
        "draft": slots > tokens,
        "beyond-max": slots > longest,
        "exactly-full": new + revived == before["num_free"] > 0,
        "none-new": new == 0,
        "revived": revived > 0 and new <= before["num_free"],
    }
    return (word for word, holds in words.items() if holds)
