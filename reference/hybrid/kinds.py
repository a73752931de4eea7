"""What each kind of layer needs: slots, blocks of a hit; and which tokens no later token needs."""

from __future__ import annotations

from dataclasses import dataclass


def ceil(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


@dataclass(frozen=True)
class Kind:
    """A group of layers with the same needs; each kind overrides what differs."""

    block_size: int
    window: int

    def slots(self, total: int, num_encoder_tokens: int) -> int:  # noqa: ARG002 - only `Cross` reads it
        """Return how many tokens need a slot; here all `total` tokens."""
        return total

    def skipped(self, computed: int) -> int:  # noqa: ARG002 - only `Sliding` and `Mamba` read it
        """Return how many tokens no later token needs after `computed` tokens; here none."""
        return 0

    def needed(self, blocks: int) -> range:
        """Return the positions where a hit of `blocks` blocks needs a block, here all; the others may be empty."""
        return range(blocks)


class Full(Kind):
    """Every token looks at all tokens before it."""


class Sliding(Kind):
    """A token looks at itself and the window - 1 tokens before it."""

    def skipped(self, computed: int) -> int:
        """Return the number of tokens without the last window - 1 tokens."""
        return max(0, computed - self.window + 1)

    def needed(self, blocks: int) -> range:
        """Return the positions of the last window - 1 tokens."""
        return range(max(0, blocks - ceil(self.window - 1, self.block_size)), blocks)


class Mamba(Kind):
    """A token needs only the state after the token before it."""

    def skipped(self, computed: int) -> int:
        """Return the number of computed tokens before the last one, whose state is all that is needed."""
        return max(0, computed - 1)

    def needed(self, blocks: int) -> range:
        """Return only the last position."""
        return range(max(0, blocks - 1), blocks)


class Cross(Kind):
    """Cross-attention: text looks at an image's tokens, which are there from the beginning and are never cached.

    `needed` is never called, because caching is off if there is a cross group.
    """

    def slots(self, total: int, num_encoder_tokens: int) -> int:  # noqa: ARG002 - text needs no slot
        """Return the number of the encoder's tokens."""
        return num_encoder_tokens


KINDS: dict[str, type[Kind]] = {"full": Full, "sliding": Sliding, "mamba": Mamba, "cross": Cross}
