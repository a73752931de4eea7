"""Compare two pools word by word and assign each difference to a facet."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from grader.core.difference import COPIED_MEMORY, SHARED_MEMORY, Difference
from grader.labs.paged_kv.judging.describe import UNTOUCHED, PoolWords
from grader.labs.paged_kv.judging.effects import Effects
from grader.labs.paged_kv.judging.record import Slot, pool_word_name
from reference.operation import Operation
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK
from reference.paged_kv.pool import GUARD_WORDS

_MOST = 96  # a zeroed pool differs in thousands of words; nobody reads more than a few


class PoolFacets:
    """Compares pool words and tells whose business each is: written, copied or untouched."""

    def __init__(self, operation: Operation, effects: Effects, words: PoolWords) -> None:
        self.operation = operation
        self.effects = effects
        self.words = words
        self.target = None if effects.stored is None else GUARD_WORDS + effects.stored
        self.stored_somewhere = False
        """Does kv_data stand at a place where it should not?"""

    def differences(self, want: Slot, have: Slot) -> Iterator[Difference]:
        """The words that differ, that of kv_data first."""
        if want.region == have.region:
            return
        wanted, actual = array("I", want.region), array("I", have.region)
        data = self._data()
        self.stored_somewhere = any(b == data != a for a, b in zip(wanted, actual, strict=False))
        places = [place for place, (a, b) in enumerate(zip(wanted, actual, strict=False)) if a != b]
        places.sort(key=lambda place: place != self.target)  # the target word says most about an append
        for place in places[:_MOST]:
            yield self._word(place, wanted[place], actual[place])

    def _word(self, place: int, want: int, have: int) -> Difference:
        tags, field = frozenset(self._tags(place, have)), pool_word_name(place, self.words.pool_bytes)
        actual, copied = self.words.text(have, place), self.effects.copied
        return Difference(
            facet=self._facet(place),
            field=field,
            expected=self.words.text(want, place),
            actual=actual,
            tags=tags,
            said=not_copied(field, copied[0], actual) if copied and COPIED_MEMORY in tags else "",
        )

    def _facet(self, place: int) -> str:
        """A copying append answers for the copy and for storing kv_data at all, not for where in the block."""
        if self.operation.name != "append_kv":
            return "untouched"
        if self.effects.copied and (place != self.target or not self.stored_somewhere):
            return "copied"
        return "written"

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
        """The word that an append stores."""
        if self.operation.name != "append_kv":
            return None
        return self.operation.numbers[1] & 0xFFFFFFFF


def not_copied(field: str, old_block: int, actual: str) -> str:
    """Return the sentence for a word that a copying append had to copy."""
    sentence = f"{field} was not copied from block {old_block}"
    return sentence if actual == UNTOUCHED else f"{sentence}: it is {actual}"
