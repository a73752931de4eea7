"""Task 4: requests, and the hashes of their full blocks.

A hash is named by its contents, the tokens of all earlier blocks and of this block: "h1.1/2.2". Extra keys follow a
plus. So names are equal if hashes must be equal, however a program computes its hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Feature = tuple[str, int, int]  # hash, offset and length of an item that is no text


@dataclass
class Text:
    """The arguments of which a request was made, and its tokens so far."""

    token_ids: list[int]
    lora_name: str | None = None
    cache_salt: str | None = None
    mm_features: tuple[Feature, ...] = ()
    skip_reading_prefix_cache: bool = False

    @property
    def plain(self) -> list[Any]:
        """The fields as plain values: the tokens, and the other fields if any of them is set."""
        features = [list(feature) for feature in self.mm_features]
        others = [self.lora_name, self.cache_salt, features, self.skip_reading_prefix_cache]
        return [list(self.token_ids), *(others if any(others) else ())]

    @classmethod
    def of(cls, plain: list[Any]) -> Text:
        """Return the text with these plain values."""
        tokens, lora, salt, features, skip = plain if len(plain) > 1 else [*plain, None, None, (), False]
        return cls(list(tokens), lora, salt, tuple((name, offset, length) for name, offset, length in features), skip)


@dataclass
class Request:
    """The attributes of a request."""

    num_tokens: int
    num_computed_tokens: int = 0
    block_hashes: list[str] = field(default_factory=list)

    @property
    def plain(self) -> list[Any]:
        """The fields as a list, for a state."""
        return [self.num_tokens, self.num_computed_tokens, list(self.block_hashes)]


def hash_block_tokens(parent: str | None, token_ids: Sequence[int], keys: tuple[Any, ...] | None) -> str:
    """Return a text that represents a block's hash. Blocks with other parents, tokens or extra keys get other texts."""
    before = "h" if parent is None else f"{parent}/"
    return before + ".".join(map(str, token_ids)) + ("" if keys is None else f"+{keys}")


def extra_keys(text: Text, start: int, end: int) -> tuple[Any, ...] | None:
    """Return the extra keys in the hash of the block with tokens `start` to `end` - 1, or None if there are none."""
    keys: list[Any] = []
    if text.lora_name is not None:
        keys.append(text.lora_name)
    for name, offset, length in text.mm_features:
        if offset < end and offset + length > start:
            keys.append((name, offset - start))
    if text.cache_salt is not None and start == 0:
        keys.append(text.cache_salt)
    return tuple(keys) or None
