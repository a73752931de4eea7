"""`python -m grader.tests.trials.hybrid_peer --archive PATH [--traces 4500]`: the reference against vLLM itself.

PATH is vLLM's source archive, vllm-0.22.1.tar.gz, which is unpacked but not built; without it the trial is skipped. Its
KVCacheManager with its coordinators, in a child process, and Part 1 of the reference of the hybrid assignment are given
the same random traces, 60 operations each: those of `grader.labs.hybrid.traces` that are of managers, with one to four
groups, full, sliding, mamba and (without caching) cross. In every third trace the block sizes have the ratios 1:2:3.

What must hold: after every operation both have the same reply (hits with their length, new blocks, refusals), free
queue, reference counts, index (hashes named by contents, oldest block first), tables of every group, and computed
tokens. A block's hash is the key under which the index has it.

Left out is what vLLM does not have or does elsewhere: `spoil`, and calls that the handout answers with a `ValueError`
(a kind, size or window that cannot be, cross layers with caching, no token), which vLLM asserts or checks elsewhere.
Three options of vLLM are set to what the handout has: Mamba keeps a state in every block (`mamba_cache_mode` "all"),
each operation is a step of its own (`new_step_starts`; in vLLM a Mamba block cannot be hit in the step that made it),
and encoder tokens are passed in every call. `evict` is passed those blocks only that nobody uses.

Three differences are known, all in what the handout decides. With `--without-known` vLLM is asked without them.

1. Several groups, all with the same spec, and caching:  manager 9 [[full,1,2],[full,1,2]] true.  vLLM refuses such a
   manager; its coordinator wants two specs. It gets specs that differ in their page size, which the handout's groups do
   not have. More than two full groups are left out, since vLLM would do with them what comes next.
2. Full groups with two block sizes beside a third spec. vLLM cuts only the first full spec to the common hit, so that a
   group of the second one may get more blocks than the hit has. The length of the hit is the handout's. `match` and the
   `admit` behind it are left out where a group would get too many.
3. A window that needs fewer blocks than the alignment has. vLLM does not enter those blocks in the index at which no
   hit can end; the handout enters every block. `_cache_block_mask` of the window is then that of vLLM's base class.

How many operations were left out is printed.

It takes about three minutes, prints how many traces and operations agree, what occurred in them, and the first
difference; the exit code is 1 when there is one.

`--freeze FILE` also writes traces with what vLLM had, for reference/tests/hybrid/test_vllm_traces.py:
`--without-known --traces 240 --length 30 --freeze reference/tests/hybrid/vllm_traces.json.gz` made the file that is
there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count, pairwise
from math import gcd
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from grader.labs.hybrid.oracle import circumstances
from grader.labs.hybrid.traces import Call, _Requests
from grader.tests.support.vllm_peer import PeerTrial, Played, VllmSide
from reference.hybrid.engine import Hybrid
from reference.hybrid.kinds import Full
from reference.hybrid.manager import Group
from reference.operation import Argument, Operation, Reply
from reference.tests.hybrid.test_vllm_traces import PARTS, parts

_ENDLESS = 10**9
_DIGEST = 32  # bytes of a hash; a larger block has those of its parts, one after the other


class _WithRatios(_Requests):
    """Managers whose groups have block sizes in the ratios 1:2:3, at least two of them."""

    def _manager(self) -> Call:
        while True:
            name, arguments = super()._manager()
            if len({size for _, size, _ in _groups(arguments)}) > 1:
                return name, arguments


def _groups(arguments: tuple[Argument, ...]) -> tuple[Group, ...]:
    """The groups of a `manager`."""
    return cast("tuple[Group, ...]", arguments[1])


def played(seed: int, length: int, *, without_known: bool) -> Played:
    """Play a seed's trace until it has so many operations."""
    trace, engine = Played(seed), Hybrid()
    maker = (_WithRatios if seed % 3 == 2 else _Requests)(Random(seed), engine, length)
    while True:
        for name, arguments in maker.next():
            operation = Operation(name=name, arguments=arguments)
            if name == "admit" and engine.looked[:1] != [arguments[0]]:  # its `match` was left out
                continue
            if without_known and is_known(engine, operation):
                trace.known += 1
                continue
            before = engine.state()
            reply = engine.apply(operation)
            if reply.text == "ValueError":  # vLLM refuses elsewhere; it changed nothing
                continue
            trace.operations.append(operation)
            trace.after.append((json.loads(reply.text), parts(engine.state())))
            trace.met.update(_met(operation, reply, {*circumstances(before, operation, reply, engine.state())}))
            if len(trace.operations) == length:
                return trace


def is_known(engine: Hybrid, operation: Operation) -> bool:
    """Whether vLLM could find blocks behind the common hit in this manager, or finds some now."""
    if operation.name == "manager":
        groups = _groups(operation.arguments)
        return bool(operation.arguments[2]) and len(groups) > 2 and are_alike(groups) and groups[0][0] == "full"
    return operation.name == "match" and bool(engine.settings[2]) and _finds_too_much(engine, operation)


def are_alike(groups: Sequence[Group]) -> bool:
    """Whether groups have one spec; a window is part of it in sliding groups only."""
    return len({(kind, size, window if kind == "sliding" else 0) for kind, size, window in groups}) == 1


def _finds_too_much(engine: Hybrid, operation: Operation) -> bool:
    """Whether full groups of another block size than the first ones' have more blocks than the common hit."""
    peek = Hybrid()
    peek.restore(engine.state())
    _, tokens = json.loads(peek.apply(operation).text)
    request = engine.requests[str(operation.arguments[0])]
    longest, lengths = len(request.tokens) - 1, []
    for size in dict.fromkeys(group.block_size for group in engine.groups if isinstance(group, Full)):
        ids = [number for number, group in enumerate(engine.groups) if group == Full(size, group.window)]
        hashes, blocks = request.block_hashes(size), 0
        while (blocks + 1) * size <= longest and all(
            engine.pool.get_cached_block(hashes[blocks], group_id) for group_id in ids
        ):
            blocks += 1
        longest = blocks * size // engine._alignment * engine._alignment
        lengths.append(longest)
    return any(length > tokens for length in lengths[1:])


def _met(operation: Operation, reply: Reply, words: set[str]) -> Iterator[str]:
    """What a summary counts."""
    if operation.name == "manager":
        groups = _groups(operation.arguments)
        yield "managers with caching" if operation.arguments[2] else "managers without caching"
        yield from {f"managers with {kind} groups" for kind, _, _ in groups}
        yield from {"managers with several block sizes" for pair in pairwise(groups) if pair[0][1] != pair[1][1]}
    if operation.name == "match" and any(json.loads(reply.text)[0]):
        hits, _ = json.loads(reply.text)
        yield "hits"
        yield from {"hits with nulls" for blocks in hits if 0 in blocks}
    yield from {"refusals" for _ in (reply,) if reply.refused}
    names = {"released": "releases", "takes-released": "calls that take a block just released"}
    yield from (name for word, name in names.items() if word in words)


class VllmManager(VllmSide):
    """vLLM's manager, and requests; each operation does what the handout's driver does."""

    def __init__(self) -> None:
        super().__init__()
        self._managers = import_module("vllm.v1.core.kv_cache_manager")
        self._kinds = import_module("vllm.v1.core.single_type_kv_cache_manager")
        self._manager: Any = None

    def manager(self, num_blocks: int, groups: list[tuple[str, int, int]], caching: bool) -> None:  # noqa: FBT001 - as in a trace
        """A new manager; forgets hashes and requests."""
        if self.without_known:
            self._kinds.SlidingWindowManager._cache_block_mask = self._kinds.SingleTypeKVCacheManager._cache_block_mask
        differ = self.without_known and caching and are_alike(groups)
        block_size = gcd(*(size for _, size, _ in groups))
        self._manager = self._managers.KVCacheManager(
            self.interface.KVCacheConfig(
                num_blocks=num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[
                    self.interface.KVCacheGroupSpec([f"layer{number}"], self._spec(number if differ else 0, *group))
                    for number, group in enumerate(groups)
                ],
            ),
            _ENDLESS,
            block_size,
            enable_caching=caching,
        )
        self.names, self.hashes, self.block_size = {}, {}, block_size
        self.block_hasher = self.hasher(block_size)
        self.requests: dict[str, Any] = {}
        self.encoder_tokens: dict[str, int] = {}
        self.looked: tuple[Any, int] = (None, 0)

    def _spec(self, number: int, kind: str, block_size: int, window: int) -> Any:
        """What vLLM calls a group of this kind; groups with other numbers have pages of other sizes."""
        size = number + 1
        if kind == "mamba":
            return self.interface.MambaSpec(block_size, shapes=((size,),), dtypes=(None,), mamba_cache_mode="all")
        name = {"full": "FullAttentionSpec", "sliding": "SlidingWindowSpec", "cross": "CrossAttentionSpec"}[kind]
        more = {"sliding_window": window} if kind == "sliding" else {}
        return getattr(self.interface, name)(block_size=block_size, num_kv_heads=1, head_size=size, dtype=None, **more)

    def _hash(self, contents: tuple[bytes, tuple[int, ...], tuple[Any, ...] | None]) -> bytes:
        """vLLM's hash; notes its name, and sees that equal contents have equal hashes and no others do."""
        digest: bytes = self._sha256(contents)
        parent, tokens, _ = contents
        name = self.names.get(parent, "") + "".join(map(chr, tokens))
        assert self.names.setdefault(digest, name) == name, f"{name} and {self.names[digest]} have one hash"
        assert self.hashes.setdefault(name, digest) == digest, f"{name} has two hashes"
        return digest

    def apply(self, name: str, arguments: list[Any]) -> Any:
        """Each operation is a step."""
        if self._manager is not None:
            self._manager.coordinator.new_step_starts()
        return super().apply(name, arguments)

    def new(self, name: str, tokens: str, num_encoder_tokens: int) -> None:
        """A request."""
        self.requests[name] = self.requests_module.Request(
            name,
            list(map(ord, tokens)),
            SimpleNamespace(max_tokens=1, extra_args=None, skip_reading_prefix_cache=None),
            None,
            block_hasher=self.block_hasher,
        )
        self.encoder_tokens[name] = num_encoder_tokens

    def append(self, request: str, tokens: str) -> None:
        """More tokens."""
        self.requests[request].append_output_token_ids(list(map(ord, tokens)))

    def match(self, request: str) -> list[Any]:
        """The hits of each group, and their tokens."""
        self.looked = self._manager.get_computed_blocks(self.requests[request])
        blocks, tokens = self.looked
        return [_ids(blocks), tokens]

    def admit(self, request: str, tokens: int) -> list[list[int]] | None:
        """Allocate with the hits of the `match` just before."""
        hits, hit_tokens = self.looked
        return self._allocated(request, tokens, hit_tokens, hits)

    def step(self, request: str, tokens: int) -> list[list[int]] | None:
        """Allocate without."""
        return self._allocated(request, tokens, 0, None)

    def _allocated(self, request: str, tokens: int, hit_tokens: int, hits: Any) -> list[list[int]] | None:
        asking = self.requests[request]
        computed = asking.num_computed_tokens + hit_tokens
        tokens = min(tokens, asking.num_tokens - computed)
        encoder_tokens = self.encoder_tokens[request]
        new = self._manager.allocate_slots(asking, tokens, hit_tokens, hits, num_encoder_tokens=encoder_tokens)
        if new is None:
            return None
        asking.num_computed_tokens = computed + tokens
        return _ids(new)

    def free(self, request: str) -> None:
        """The request has ended."""
        self._manager.free(self.requests.pop(request))

    def preempt(self, request: str) -> None:
        """The request will be computed again."""
        self._manager.free(self.requests[request])
        self.requests[request].num_computed_tokens = 0

    def evict(self, block_ids: list[int]) -> None:
        """Evict those of the blocks that nobody uses."""
        blocks = self._manager.block_pool.blocks
        self._manager.evict_blocks({number for number in block_ids if not blocks[number].ref_cnt})

    def state(self) -> dict[str, Any]:
        """What of vLLM's state is compared."""
        if self._manager is None:  # the first one was refused
            return dict.fromkeys(PARTS)
        pool, kinds = self._manager.block_pool, self._manager.coordinator.single_type_managers
        assert pool.blocks[0].is_null
        index = {
            self._key(key): list(entry) if isinstance(entry, dict) else [entry.block_id]
            for key, entry in pool.cached_block_hash_to_block._cache.items()
        }
        under = {block: key for key, blocks in index.items() for block in blocks}
        hashes = {block.block_id: block.block_hash for block in pool.blocks if block.block_hash is not None}
        assert under == {block: self._key(key) for block, key in hashes.items()}
        tables = {name: [[block.block_id for block in kind.req_to_blocks.get(name, ())] for kind in kinds]
                  for name in self.requests}  # fmt: skip
        return {
            "free": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "ref": {str(block.block_id): block.ref_cnt for block in pool.blocks[1:] if block.ref_cnt},
            "index": index,
            "tables": {name: blocks for name, blocks in tables.items() if any(blocks)},
            "requests": {
                name: [
                    "".join(map(chr, request.all_token_ids)),
                    self.encoder_tokens[name],
                    request.num_computed_tokens,
                ]
                for name, request in self.requests.items()
            },
        }

    def _key(self, key: bytes) -> str:
        """Text and group of a key of the index; the hash of a larger block is that of its parts."""
        digest = self.utils.get_block_hash(key)
        names = [self.names[digest[start : start + _DIGEST]] for start in range(0, len(digest), _DIGEST)]
        assert all(text[: -self.block_size] == before for before, text in pairwise(names))
        return f"{names[-1]}/{self.utils.get_group_id(key)}"


def _ids(blocks: Any) -> list[list[int]]:
    return [list(ids) for ids in blocks.get_block_ids()]


TRIAL = PeerTrial(
    module="grader.tests.trials.hybrid_peer",
    documentation=__doc__,
    side=VllmManager,
    play=played,
    seeds=count(),
    traces=4500,
    length=60,
    unit="operations",
)

if __name__ == "__main__":
    sys.exit(TRIAL.run())
