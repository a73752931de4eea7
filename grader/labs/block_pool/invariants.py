"""What can never be so in the state of a block pool, each in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    yield from _of_the_queue(state)
    if state["ref"]:
        yield from _of_the_counts(state)
        yield from _of_the_index(state)
        yield from (f"blocks {first} and {second} share one payload list" for first, second in state["shared"])
    if state["sizes"][0]:
        yield from _of_the_tables(state)


def _of_the_queue(state: dict[str, Any]) -> Iterator[str]:
    free = state["free"]
    yield from (
        f"block {block} is in the queue twice"
        for block in sorted({number for number in free if free.count(number) > 1})
    )
    if state["back"] != free[::-1]:
        yield "the queue read backwards differs from the queue read forwards"
    if state["num_free"] != len(free):
        yield f"num_free_blocks is {state['num_free']}, the queue has {len(free)}"
    yield from (f"block {block} is outside the queue but still has a link" for block in state["loose"])


def _of_the_counts(state: dict[str, Any]) -> Iterator[str]:
    free = set(state["free"])
    for block, count in enumerate(state["ref"]):
        if count is None:
            continue
        if count == 0 and block not in free:
            yield f"block {block} is free (ref_cnt 0) but not in the queue"
        if count != 0 and block in free:
            yield f"block {block} is in use (ref_cnt {count}) but in the queue"
    yield from (f"the null block (block {block}) is in the queue" for block in state["null"] if block in free)
    yield from (f"the null block (block {block}) has a hash" for block in state["null"] if state["hash"][block])


def _of_the_index(state: dict[str, Any]) -> Iterator[str]:
    hashes, index = state["hash"], state["index"]
    for block, hash_ in enumerate(hashes):
        if hash_ is not None and block not in index.get(hash_, ()):
            yield f"block {block} has hash {hash_} but the index does not hold it"
    for hash_, blocks in index.items():
        if not blocks:
            yield f"the index has an entry without blocks under {hash_}"
        for block in blocks:
            if hashes[block] != hash_:
                yield f"the index holds block {block} under {hash_}, but the block's hash is {hashes[block]}"


def _of_the_tables(state: dict[str, Any]) -> Iterator[str]:
    used = list(chain.from_iterable(state["tables"].values()))
    for block, count in enumerate(state["ref"]):
        if count is not None and count != used.count(block):
            yield f"ref_cnt of block {block} is {count}, but {used.count(block)} tables contain it"
