"""Compare two records of one operation by facets: each rule judges only its own facets."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grader.core.judgement import COPIED_MEMORY, NEVER_SET, SHARED_MEMORY, STILL_EMPTY, UNFILLED, Difference
from grader.core.model import is_unreadable
from grader.labs.paged_kv.effects import Effects
from grader.labs.paged_kv.states import (
    ENGINE,
    NEXT_WALK,
    PREV_WALK,
    UNTOUCHED,
    PoolWords,
    State,
    engine_prefix,
    pointer_name,
    pointer_tag,
    pool_word_name,
)
from grader.labs.paged_kv.wrong_target import with_notes
from reference.operation import Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE
from reference.paged_kv.pool import GUARD_WORDS
from reference.paged_kv.sequence import UNMAPPED

FRESH = int.from_bytes(b"\xa5" * 4, "little", signed=True)
"""An int in memory from malloc that was never written: the driver fills such memory with 0xA5."""

_MOST_PER_FACET = 24  # a zeroed pool differs in thousands of words; nobody reads more than a few


def differences(
    operation: Operation,
    effects: Effects,
    *,
    expected: State,
    actual: State,
    seed: int,
    known: frozenset[Difference] = frozenset(),
) -> list[Difference]:
    """Return all places where `actual` is not `expected`: the reply first, then in the order of a record.

    In another engine than the called one every difference has facet `isolation`. In a call that must fail every
    difference but the reply has facet `failing`. Differences `known` from before the call are omitted.
    """
    results: list[Difference] = []
    refused = effects.reply.refused
    returned = actual["reply"]["returned"]
    if expected["reply"]["returned"] != returned:
        results.append(_reply_difference(effects.reply, returned, operation))
        if refused and returned not in (None, -1):
            sentence = f"{operation.name} works although it must fail"
            results.append(_difference("failing", "the call", "refused", "accepted", sentence=sentence))
    for number, want in expected["state"].items():
        own = int(number) == operation.target
        words = PoolWords(seed, int(number), want["pool_bytes"])
        pool = PoolFacets(operation, effects if own else Effects(effects.reply), words)
        counted: dict[str, int] = {}
        for difference in _slot(want, actual["state"][number], pool):
            placed = _placed(difference, int(number), own=own, refused=refused)
            if placed in known:
                continue
            counted[difference.facet] = counted.get(difference.facet, 0) + 1
            if counted[difference.facet] <= _MOST_PER_FACET:
                results.append(placed)
    return with_notes(results, operation, effects, expected=expected["state"], actual=actual["state"])


def standing(number: int, *, repaired: State, left: State) -> frozenset[Difference]:
    """Return the impossible values of engine `number` before the call, which no later call is blamed for."""
    want, have = (state[str(number)]["engine"] if str(number) in state else None for state in (repaired, left))
    if want is None or have is None or want is have:
        return frozenset()
    return frozenset(_placed(difference, number, own=True, refused=False) for difference in _engine(want, have))


def _placed(difference: Difference, number: int, *, own: bool, refused: bool) -> Difference:
    """Return a difference with the number of its engine in its name.

    The facet becomes "failing" if the call must fail, else "isolation" if the engine is not the call's `own` one.
    """
    prefix = engine_prefix(number)
    if prefix:
        sentence = f"{prefix}{difference.sentence}" if difference.sentence else ""
        difference = replace(difference, field=f"{prefix}{difference.field}", sentence=sentence)
    if own and not refused:
        return difference
    facet = "failing" if refused else "isolation"
    return replace(difference, facet=facet, tags=difference.tags | {difference.facet})


def _difference(
    facet: str, field: str, expected: str, actual: str, *, tags: Iterable[str] = (), sentence: str = ""
) -> Difference:
    return Difference(
        facet=facet, field=field, expected=expected, actual=actual, tags=frozenset(tags), sentence=sentence
    )


def _reply_difference(reply: Reply, actual: Any, operation: Operation) -> Difference:
    returned = "an engine" if actual == ENGINE else f"a pointer to {actual}" if isinstance(actual, str) else str(actual)
    if actual is None or is_unreadable(actual):
        returned = "NULL" if actual is None else "a pointer that leads to no Sequence"
    wanted = {"seq": "a pointer to the new sequence", "engine": "an engine"}.get(reply.text, reply.text)
    sentence = f"{operation.name} returned {returned}, expected {wanted}"
    return _difference("reply", f"what {operation.name} returns", wanted, returned, sentence=sentence)


def _slot(want: State, have: State, pool: PoolFacets) -> Iterator[Difference]:
    if want["engine"] is None or have["engine"] is None:
        if want["engine"] is not have["engine"]:
            right, there = ("exists" if slot["engine"] else "does not exist" for slot in (want, have))
            yield _difference("counters", "the engine", right, there)
    else:
        yield from _engine(want["engine"], have["engine"])
    yield from pool.differences(want["region"], have["region"])


def _engine(want: State, have: State) -> Iterator[Difference]:
    if "pool_base_ptr" in have and "pool_base_ptr" not in want:
        yield _difference("counters", "pool_base_ptr", "pool_addr", "another address")
    for name in ("total_local_blocks", "free_local_blocks"):
        yield from _number("counters", name, want[name], have[name])
    wanted, counts = want["ref_count"], have["ref_count"]
    if isinstance(wanted, list) and isinstance(counts, list):
        for block, (right, count) in enumerate(zip(wanted, counts, strict=False)):
            yield from _number("ref_count", f"ref_count[{block}]", right, count)
    elif wanted != counts:
        array_or_not = f"an array of {len(wanted)} ints" if isinstance(wanted, list) else pointer_name(wanted)
        yield _difference("ref_count", "ref_count", array_or_not, pointer_name(counts), tags={pointer_tag(counts)})
    yield from _list(want, have)
    yield from _sequences(want, have)


def _list_is_broken(end: Any, ids: list[int]) -> str:
    """Describe a list whose `next` links do not lead back to the dummy head; `ids` are the sequences before its end."""
    walk = f"following next reaches {pointer_name(end).removeprefix('a pointer to ')}; it must come back"
    if pointer_tag(end) == "shared":
        walk = "following next never comes back"
    behind = f" (found before: {', '.join(map(str, ids))})" if ids else ""
    return f"{walk} to the dummy head{behind}"


def never_set(field: str, wanted: str, actual: int) -> str:
    """Return the sentence for an int that a program forgot to set; "" if the program stored something there."""
    return f"{field} must be {wanted}; it was never set" if actual == FRESH else ""


def _number(facet: str, field: str, want: int, have: int) -> Iterator[Difference]:
    if want != have:
        tags = {"too-high" if have > want else "too-low"} | ({NEVER_SET} if have == FRESH else set())
        sentence = never_set(field, str(want), have)
        yield _difference(facet, field, str(want), str(have), tags=tags, sentence=sentence)


def _list(want: State, have: State) -> Iterator[Difference]:
    wanted, ids = want["active_seqs"], have["active_seqs"]
    if "next" in have and "next" not in want:
        end = have["next"]
        ends = "never comes back" if pointer_tag(end) == "shared" else pointer_name(end)
        actual, sentence = f"{ends}, after {len(ids)} sequences", _list_is_broken(end, ids)
        tags = {"broken", pointer_tag(end)}
        yield _difference("list", NEXT_WALK, "comes back to the dummy head", actual, tags=tags, sentence=sentence)
    elif wanted != ids:
        tags = {"order"} if sorted(wanted) == sorted(ids) else {"missing" if len(ids) < len(wanted) else "extra"}
        field, right, there = "the sequences along next from active_seqs", _ids(wanted), _ids(ids)
        sentence = f"the walk along next from active_seqs meets {there}, expected {right}"
        yield _difference("list", field, right, there, tags=tags, sentence=sentence)
    elif "prev" in have and "prev" not in want:
        sentence = "the walk along prev from active_seqs does not mirror the walk along next"
        yield _difference("list", PREV_WALK, _ids(wanted[::-1]), "not their mirror", tags={"prev"}, sentence=sentence)


def _ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _sequences(want: State, have: State) -> Iterator[Difference]:
    """Compare sequences by their ids. `_list` reports missing ones."""
    for seq_id, wanted in want["sequences"].items():
        there = have["sequences"].get(seq_id)
        if there is not None and there != wanted:
            name = f"sequence {seq_id}"
            yield from _number("fields", f"{name}: kv_count", wanted["kv_count"], there["kv_count"])
            yield from _tables(f"{name}: block_table", wanted["block_table"], there["block_table"])
    if len(have["active_seqs"]) == len(want["active_seqs"]):
        for right, left in zip(want["active_seqs"], have["active_seqs"], strict=True):
            if str(right) not in have["sequences"]:
                yield from _number("fields", f"sequence {right}: seq_id", right, left)


def _tables(name: str, want: Any, have: Any) -> Iterator[Difference]:
    if not isinstance(want, list) or not isinstance(have, list):
        if want != have:
            yield _table_pointer(name, "an L1 table", want, have)
        return
    for slot, (wanted, actual) in enumerate(zip(want, have, strict=False)):
        if wanted != actual:
            field = f"{name}[{slot}]"
            if isinstance(wanted, list) and isinstance(actual, list):
                yield from _entries(field, tuple(wanted), tuple(actual))
            else:
                yield _table_pointer(field, "an L2 table", wanted, actual)


def _table_pointer(field: str, table: str, want: Any, have: Any) -> Difference:
    wanted, actual = (table if isinstance(pointer, list) else pointer_name(pointer) for pointer in (want, have))
    tags = {"shape", pointer_tag(have)} | ({STILL_EMPTY} if have is None else set())
    return _difference("tables", field, wanted, actual, tags=tags)


@lru_cache(maxsize=1024)
def _entries(field: str, want: tuple[int, ...], have: tuple[int, ...]) -> tuple[Difference, ...]:
    """Compare the entries of an L2 table. A wrong table mostly stays the same from call to call, so it is cached."""
    results = []
    for entry, (wanted, actual) in enumerate(zip(want, have, strict=True)):
        if wanted != actual:
            place, right = f"{field}[{entry}]", "-1" if wanted == UNMAPPED else f"block {wanted}"
            tags, sentence = _entry_tags(wanted, actual), never_set(place, right, actual)
            results.append(_difference("tables", place, right, str(actual), tags=tags, sentence=sentence))
    return tuple(results)


def _entry_tags(want: int, have: int) -> Iterator[str]:
    yield UNFILLED if want == UNMAPPED else "mapping"
    if have == UNMAPPED:
        yield STILL_EMPTY
    if want != UNMAPPED and have >= 0:
        yield "remapped"
    if have == FRESH:
        yield NEVER_SET


_SIGN_EXTENSIONS = (0, -1)
"""The possible upper halves of an int that was stored as 8 bytes."""

_MOST = 96  # a zeroed pool differs in thousands of words; nobody reads more than a few


class PoolFacets:
    """Compares pool words, and gives each difference the facet `written`, `copied` or `untouched`."""

    def __init__(self, operation: Operation, effects: Effects, words: PoolWords) -> None:
        self.operation = operation
        self.effects = effects
        self.words = words
        self.target = None if effects.stored is None else GUARD_WORDS + effects.stored
        self.stored: frozenset[int] = frozenset()
        """The words that differ because kv_data was stored at a wrong place or with a wrong size."""

    def differences(self, wanted: list[int], actual: list[int]) -> Iterator[Difference]:
        """Yield the words that differ, the word for kv_data first."""
        if wanted == actual:
            return
        self.stored = self._stored(wanted, actual)
        places = [place for place, (a, b) in enumerate(zip(wanted, actual, strict=False)) if a != b]
        places.sort(key=lambda place: place != self.target)  # the target word says most about an append
        for place in places[:_MOST]:
            yield self._word(place, wanted[place], actual[place])

    def _word(self, place: int, want: int, have: int) -> Difference:
        tags, field = set(self._tags(place, have)), pool_word_name(place, self.words.pool_bytes)
        actual, copied = self.words.text(have, place), self.effects.copied
        sentence = not_copied(field, copied[0], actual) if copied and COPIED_MEMORY in tags else ""
        expected = self.words.text(want, place)
        return _difference(self._facet(place), field, expected, actual, tags=tags, sentence=sentence)

    def _facet(self, place: int) -> str:
        """Return the facet of a word: `copied` in an append that copies, except for words with misplaced kv_data."""
        if self.operation.name != "append_kv":
            return "untouched"
        return "copied" if self.effects.copied and place not in self.stored else "written"

    def _stored(self, wanted: list[int], actual: list[int]) -> frozenset[int]:
        """Return the words where a copying append left kv_data, or a part of it, although something else belongs there.

        The bytes of kv_data are looked for at any offset outside the shared block, which nobody may write. They count
        if they are found once, because a value such as 0 is everywhere in a cleared block. The word for kv_data itself
        counts if kv_data is elsewhere, or if this word alone is wrong in the copy and was changed. The word after it
        counts if it contains the rest of a number of more than 4 bytes.
        """
        data, target, copied = self._data(), self.target, self.effects.copied
        if data is None or target is None or copied is None:
            return frozenset()
        wrong = {place for place, (want, have) in enumerate(zip(wanted, actual, strict=False)) if want != have}
        starts = (start for start in _starts(actual, data) if start != target * KV_SIZE)
        spans = (range(start // KV_SIZE, -(-(start + KV_SIZE) // KV_SIZE)) for start in starts)
        shared, copy = (
            range(GUARD_WORDS + block * KV_PER_BLOCK, GUARD_WORDS + (block + 1) * KV_PER_BLOCK) for block in copied
        )
        stray = [span for span in spans if wrong.intersection(span) and not set(span).intersection(shared)]
        words = set(stray[0]) if len(stray) == 1 else set()
        old = wanted[shared[target - copy.start]]
        if words or (wrong.intersection(copy) == {target} and actual[target] != old):
            words.add(target)
        if actual[target] == data and actual[target + 1] in _SIGN_EXTENSIONS:
            words.add(target + 1)
        return frozenset(words)

    def _tags(self, place: int, have: int) -> Iterator[str]:
        block = (place - GUARD_WORDS) // KV_PER_BLOCK
        yield SHARED_MEMORY
        if have == 0:
            yield "zeroed"
        if not 0 <= block < self.words.pool_bytes // BLOCK_SIZE:
            yield "outside"
        if place == self.target:
            yield "target"
        if self.effects.copied and block == self.effects.copied[0]:
            yield "shared-block"
        if self.effects.copied and block == self.effects.copied[1]:
            yield "new-block"
            if place != self.target:
                yield COPIED_MEMORY
        if have == self._data():
            yield "data"

    def _data(self) -> int | None:
        """Return the word that an append stores, None for another call."""
        if self.operation.name != "append_kv":
            return None
        return self.operation.numbers[1]


def _starts(words: list[int], word: int) -> Iterator[int]:
    """Yield the offsets, in bytes, at which the bytes of `word` are found."""
    region, data = array("i", words).tobytes(), array("i", [word]).tobytes()
    start = region.find(data)
    while start >= 0:
        yield start
        start = region.find(data, start + 1)


def not_copied(field: str, old_block: int, actual: str) -> str:
    """Return the sentence for a word that a copying append had to copy."""
    sentence = f"{field} was not copied from block {old_block}"
    return sentence if actual == UNTOUCHED else f"{sentence}: it is {actual}"
