"""`python -m grader.tests.trials.block_pool_peer --archive PATH [--traces 3000]`: the reference against vLLM itself.

PATH is vLLM's source archive, vllm-0.22.1.tar.gz, which is unpacked but not built; without it the trial is skipped. Its
KVCacheManager, in a child process, and the reference of the block pool are given the same random traces, those of
`grader.labs.block_pool.traces` that are of managers, 60 operations each. What must hold: after every operation both
have the same reply, free queue, reference counts, hashes (named by contents), index, tables, counters and requests.

Left out is what vLLM does not have: `write`, and hits for a request that has blocks already, on which vLLM fails an
assertion. The null block's count is not compared. It takes about a minute for 3,000 traces, prints how many traces and
operations agree, and the first difference; the exit code is 1 when there is one.

One difference is known, in about one trace of 500: tokens are appended and complete a block, not the first of its
request, in which an item lies that is not the request's last. vLLM then looks at the last item only, and the block's
extra keys lack the others. The handout has no such exception. `--without-known` leaves these appends out, and says how
many they were.

`--freeze FILE` also writes traces with what vLLM had, for reference/tests/block_pool/test_vllm_traces.py:
`--traces 200 --length 30 --freeze reference/tests/block_pool/vllm_traces.json.gz` made the file that is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

from grader.labs.block_pool.oracle import BlockPoolOracle
from grader.labs.block_pool.traces import generate
from grader.tests.support.vllm_peer import PeerTrial, Played, VllmSide
from reference.operation import Operation
from reference.tests.block_pool.test_vllm_traces import parts

_OURS = ("write",)
"""Operations that vLLM does not have."""


def played(seed: int, length: int, *, without_known: bool) -> Played:
    """Play the first operations of a seed's trace that both sides have."""
    drawn = length
    while True:
        drawn *= 2
        trace, engine = Played(seed), BlockPoolOracle()
        for operation in generate(Random(seed), drawn):
            if operation.name in _OURS:
                continue
            if without_known and is_known(engine, operation):
                trace.known += 1
                continue
            reply = engine.apply(operation)
            if reply.text == "ValueError":  # hits came late; it changed nothing
                continue
            trace.operations.append(operation)
            trace.after.append((json.loads(reply.text), parts(engine.state())))
            if len(trace.operations) == length:
                return trace


def is_known(engine: BlockPoolOracle, operation: Operation) -> bool:
    """Whether tokens complete a block, not the first, with an item that is not the last: vLLM forgets the item."""
    if operation.name != "append_tokens":
        return False
    request, tokens = operation.arguments
    assert isinstance(request, str)
    assert isinstance(tokens, tuple)
    text, size = engine.texts[request], engine.block_size
    start = len(text.token_ids) // size * size
    end = (len(text.token_ids) + len(tokens)) // size * size
    return start > 0 and any(offset < end and offset + length > start for _, offset, length in text.mm_features[:-1])


def seeds() -> Iterator[int]:
    """The seeds whose traces are of managers."""
    return (seed for seed in count() if generate(Random(seed), 1)[0].name == "mgr")


class VllmManager(VllmSide):
    """vLLM's manager, and requests; each operation does what the handout's driver does."""

    def __init__(self) -> None:
        super().__init__()
        self._managers = import_module("vllm.v1.core.kv_cache_manager")

    def mgr(self, num_blocks: int, block_size: int, caching: bool, max_model_len: int) -> None:  # noqa: FBT001 - as in a trace
        """A new manager."""
        config = self.config(num_blocks, block_size)
        self.manager = self._managers.KVCacheManager(config, max_model_len, block_size, enable_caching=caching)
        self.block_size = block_size
        self.requests: dict[str, Any] = {}
        self.block_hasher = self.hasher(block_size)

    def new(self, request: str, tokens: list[int]) -> None:
        """A plain request."""
        self.new_with(request, tokens, None, None, [], False)

    def new_with(self, request: str, tokens: list[int], *said: Any) -> None:
        """A request with everything that can be said of it."""
        lora, salt, features, skip = said
        self.requests[request] = self.requests_module.Request(
            request,
            tokens,
            SimpleNamespace(max_tokens=1, extra_args=None, skip_reading_prefix_cache=skip),
            None,
            lora_request=lora and SimpleNamespace(lora_name=lora),
            cache_salt=salt,
            mm_features=[
                SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=offset, length=length))
                for name, offset, length in features
            ],
            block_hasher=self.block_hasher,
        )

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """Tokens were generated."""
        self.requests[request].append_output_token_ids(tokens)

    def keys(self, request: str) -> list[Any]:
        """The extra keys of each full block."""
        asked, item, found = self.requests[request], 0, list[Any]()
        for block in range(asked.num_tokens // self.block_size):
            start = block * self.block_size
            keys, item = self.utils.generate_block_hash_extra_keys(asked, start, start + self.block_size, item)
            found.append(keys)
        return found

    def get_computed_blocks(self, request: str) -> list[Any]:
        """The hits, and their tokens."""
        blocks, tokens = self.manager.get_computed_blocks(self.requests[request])
        return [*blocks.get_block_ids(), tokens]

    def admit(self, request: str, num_new_tokens: int) -> list[Any] | None:
        """Allocate with hits."""
        hits, tokens = self.manager.get_computed_blocks(self.requests[request])
        new = self._allocated(request, num_new_tokens, tokens, hits)
        return None if new is None else [*hits.get_block_ids(), new]

    def step(self, request: str, num_new_tokens: int) -> list[int] | None:
        """Allocate without."""
        return self._allocated(request, num_new_tokens, 0, None)

    def _allocated(self, request: str, num_new_tokens: int, hit_tokens: int, hits: Any) -> list[int] | None:
        asking = self.requests[request]
        new = self.manager.allocate_slots(asking, num_new_tokens, hit_tokens, hits)
        if new is None:
            return None
        total = asking.num_computed_tokens + hit_tokens + num_new_tokens
        asking.num_computed_tokens = min(total, asking.num_tokens)
        (ids,) = new.get_block_ids()
        return list(ids)

    def free(self, request: str) -> None:
        """The request has ended."""
        self.manager.free(self.requests.pop(request))

    def preempt(self, request: str) -> None:
        """The request will be computed again, as vLLM's scheduler does it."""
        self.manager.free(self.requests[request])
        self.requests[request].num_computed_tokens = 0

    def evict_blocks(self, block_ids: list[int]) -> None:
        """Evict these blocks."""
        self.manager.evict_blocks(set(block_ids))

    def reset_prefix_cache(self) -> Any:
        """Forget all hashes."""
        return self.manager.reset_prefix_cache()

    def get_cached_block(self, name: str) -> Any:
        """The block that is found by the hash of that name."""
        found = self.manager.block_pool.get_cached_block(self.hashes.get(name, b""), [0])
        return found[0].block_id if found else None

    def get_num_free_blocks(self) -> Any:
        """Blocks in the queue."""
        return self.manager.block_pool.get_num_free_blocks()

    def get_usage(self) -> Any:
        """The share of blocks in use."""
        return round(self.manager.usage, 9)

    def state(self) -> dict[str, Any]:
        """What of vLLM's state is compared."""
        requests = {
            name: [asked.num_tokens, asked.num_computed_tokens, [self.names[digest] for digest in asked.block_hashes]]
            for name, asked in self.requests.items()
        }
        return parts({**self.pool(self.manager), "requests": requests})


TRIAL = PeerTrial(
    module="grader.tests.trials.block_pool_peer",
    documentation=__doc__,
    side=VllmManager,
    play=played,
    seeds=seeds(),
    traces=3000,
    length=60,
    unit="operations",
)

if __name__ == "__main__":
    sys.exit(TRIAL.run())
