"""What each kind of layer needs: slots, the tokens that no later token looks at, and the blocks of a hit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


def ceil(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)


@dataclass(frozen=True)
class Kind(ABC):
    """A group of layers with the same needs."""

    block_size: int
    window: int

    def slots(self, total: int, num_encoder_tokens: int) -> int:  # noqa: ARG002 - cross attention has others
        """How many tokens need a slot: all of them."""
        return total

    @abstractmethod
    def skipped(self, computed: int) -> int:
        """How many tokens no later token looks at, after so many were computed."""

    @abstractmethod
    def needed(self, blocks: int) -> range:
        """The positions at which a hit of so many blocks needs a block; there may be nothing at the others."""


class Full(Kind):
    """Every token looks at all tokens before it."""

    def skipped(self, computed: int) -> int:  # noqa: ARG002 - nothing is ever skipped
        """None."""
        return 0

    def needed(self, blocks: int) -> range:
        """All."""
        return range(blocks)


class Sliding(Kind):
    """A token looks at itself and the window - 1 tokens before it."""

    def skipped(self, computed: int) -> int:
        """All but the last window - 1."""
        return max(0, computed - self.window + 1)

    def needed(self, blocks: int) -> range:
        """Those with the last window - 1 tokens."""
        return range(max(0, blocks - ceil(self.window - 1, self.block_size)), blocks)


class Mamba(Kind):
    """Only the last state is needed."""

    def skipped(self, computed: int) -> int:
        """All but the last."""
        return max(0, computed - 1)

    def needed(self, blocks: int) -> range:
        """The last one."""
        return range(max(0, blocks - 1), blocks)


class Cross(Kind):
    """Text looks at the tokens of an image, which are there from the beginning and are never cached."""

    def slots(self, total: int, num_encoder_tokens: int) -> int:  # noqa: ARG002 - text needs none
        """Those of the encoder."""
        return num_encoder_tokens

    def skipped(self, computed: int) -> int:  # noqa: ARG002 - nothing is ever skipped
        """None."""
        return 0

    def needed(self, blocks: int) -> range:
        """All; but nobody asks, because there is no cross group while caching is on."""
        return range(blocks)


KINDS: dict[str, type[Kind]] = {"full": Full, "sliding": Sliding, "mamba": Mamba, "cross": Cross}
