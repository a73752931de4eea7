"""The oracle of the block pool: the engine with the facts that only a diagnosis needs, and the situations of calls.

In a right program these facts are constant or follow from the queues. A wrong program is judged from the facts that it
left. Known mistakes name situations by words. A situation has no word if the sentence that decided the call says the
same.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import takewhile
from typing import Any

from reference.block_pool.free_queue import Ids
from reference.block_pool.manager import Manager
from reference.block_pool.pool import NULL_BLOCK
from reference.block_pool.requests import Text
from reference.operation import Operation, Reply

State = Mapping[str, Any]
Block = Any
"""A block of the submission, or a fake block at an end of the queue."""
_SEEN = ("back", "loose", "earlier", "args", "ids", "shared")


class BlockPoolOracle(Manager):
    """The reference engine, and what else the driver reads: the queue's links, earlier queues, the callers' lists."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[int] = []  # the queue from tail to head: links that disagree give another order
        self.loose: list[int] = []  # blocks outside the queue with a link
        self.earlier: list[list[int]] = []  # the queues that were made before
        self.args = True  # whether the lists that were passed to calls are unchanged
        self.ids: Any = True  # True if `blocks` are the first blocks with ids 0 to n - 1, else their ids
        self.shared: list[list[int]] = []  # pairs of blocks with one payload list

    def queue(self, num_blocks: int, blocks: Ids) -> None:
        """Make a new queue; the queues that were made before stay the same."""
        earlier = [*self.earlier, list(self.forward)] if self.num_blocks else []
        super().queue(num_blocks, blocks)
        self.earlier = earlier

    def link(self, block: int) -> None:
        """Put a block at the tail."""
        super().link(block)
        self.back.insert(0, block)
        self.loose = [other for other in self.loose if other != block]

    def unlink(self, block: int) -> None:
        """Take a block out of the queue; both its links become None."""
        super().unlink(block)
        if block in self.back:
            self.back.remove(block)

    def clear_lists(self) -> None:
        """Note that the caller empties the lists that the last call took and returned: they belong to the caller."""
        self.because("Constraint 5/lists")

    def state(self) -> dict[str, Any]:
        """Return the state of the engine with the facts that only a diagnosis needs."""
        return super().state() | {name: deepcopy(getattr(self, name)) for name in _SEEN}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to one that `state` returned or the driver read."""
        super().restore(state)
        for name in _SEEN:
            setattr(self, name, deepcopy(state[name]))


class FakeBlock:
    """A block before the first or after the last block of the queue."""

    def __init__(self) -> None:
        self.prev_free: Block = None
        self.next_free: Block = None


class FreeKVCacheBlockQueue:
    """A right queue. It replaces the submission's queue when a case is played again.

    Its source is sent to the process that plays the case, and is in no copy for students.
    """

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.fake_free_list_head, self.fake_free_list_tail = head, tail = FakeBlock(), FakeBlock()
        head.next_free, tail.prev_free = tail, head
        self.num_free_blocks = 0
        self.append_n(blocks)

    def popleft(self) -> Block:
        """Take the first block out, and return it."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Block]:
        """Take the first n blocks out, and return them."""
        blocks = self.get_all_free_blocks()[:n]
        if len(blocks) < n:
            raise ValueError("too few blocks are free")
        for block in blocks:
            self.remove(block)
        return blocks

    def remove(self, block: Block) -> None:
        """Take a block out, wherever it is."""
        if block.next_free is None:
            raise RuntimeError("the block is not in the queue")
        block.prev_free.next_free, block.next_free.prev_free = block.next_free, block.prev_free
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block: Block) -> None:
        """Put a block at the tail."""
        self.append_n([block])

    def append_n(self, blocks: Iterable[Block]) -> None:
        """Put blocks at the tail."""
        blocks = list(blocks)
        if any(block.next_free is not None for block in blocks):
            raise RuntimeError("the block is in the queue")
        for block in blocks:
            last, tail = self.fake_free_list_tail.prev_free, self.fake_free_list_tail
            last.next_free = tail.prev_free = block
            block.prev_free, block.next_free = last, tail
            self.num_free_blocks += 1

    def get_all_free_blocks(self) -> list[Block]:
        """Return the blocks, the first one first."""
        blocks, block = [], self.fake_free_list_head.next_free
        while block is not self.fake_free_list_tail:
            blocks.append(block)
            block = block.next_free
        return blocks


def circumstances(before: State, operation: Operation, reply: Reply, after: State) -> Iterator[str]:
    """Yield the words for the situation of a call."""
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
    """Yield the words for a call whose situation depends on its first argument, `first`."""
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
    """Yield "hashed" if a block that is to lose its hash has one, "duplicate" if another block has an equal one."""
    hashes = [before["hash"][block] for block in blocks if before["hash"][block] is not None]
    if hashes:
        yield "hashed"
    if any(len(before["index"].get(hash_, ())) > 1 for hash_ in hashes):
        yield "duplicate"


def _cached(before: State, after: State) -> Iterator[str]:
    """Yield a word if a block got a hash that another block has."""
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
    """Yield the words for what a request has in addition to its tokens."""
    words = {"lora": text.lora_name is not None, "salt": text.cache_salt is not None, "mm": bool(text.mm_features)}
    return (word for word, has in words.items() if has)


def _skips(before: State, request: str) -> bool:
    return "True" in before["texts"] and _text(before, request).skip_reading_prefix_cache


def _hits(before: State, request: str) -> tuple[list[str], int]:
    """Return the cached hashes at the front of a request, and how many of them may be hits."""
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
    """Yield the words for how many tokens get slots, and from which blocks."""
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
