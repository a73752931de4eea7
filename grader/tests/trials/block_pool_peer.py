"""`python -m grader.tests.trials.block_pool_peer --archive PATH [--traces 3000]`: the reference against vLLM itself.

PATH is vLLM's source archive, vllm-0.22.1.tar.gz, which is unpacked but not built; without it the trial is skipped. Its
KVCacheManager, in a child process, and the reference of the block pool are given the same random traces, those of
`reference.block_pool.generate` that are of managers, 60 operations each. What must hold: after every operation both
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

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import IO, Any

from grader.tests.support.vllm_source import ARCHIVE, NotTheArchive, install, unpack
from reference.block_pool import Manager, generate
from reference.block_pool.requests import hash_block_tokens
from reference.operation import Operation
from reference.tests.block_pool.test_vllm_traces import PARTS, parts

_OURS = ("write",)
"""Operations that vLLM does not have."""


@dataclass(slots=True)
class Played:
    """A trace of a seed, with the reply and the compared parts of the state that the reference had after each."""

    seed: int
    operations: list[Operation] = field(default_factory=list)
    after: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    known: int = 0
    """Operations that were left out because vLLM is known to differ."""


def played(seed: int, length: int, *, without_known: bool) -> Played:
    """Play the first operations of a seed's trace that both sides have."""
    drawn = length
    while True:
        drawn *= 2
        trace, engine = Played(seed), Manager()
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
            trace.after.append((json.loads(reply.text), parts(engine)))
            if len(trace.operations) == length:
                return trace


def is_known(engine: Manager, operation: Operation) -> bool:
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


class Vllm:
    """vLLM's manager of one full-attention group, and requests; each operation does what the handout's driver does."""

    def __init__(self) -> None:
        core = "vllm.v1.core"
        self._managers = import_module(f"{core}.kv_cache_manager")
        self._utils = import_module(f"{core}.kv_cache_utils")
        self._interface = import_module("vllm.v1.kv_cache_interface")
        self._requests = import_module("vllm.v1.request")
        self._sha256 = import_module("vllm.utils.hashing").sha256
        self._utils.init_none_hash(self._sha256)

    def mgr(self, num_blocks: int, block_size: int, caching: bool, max_model_len: int) -> None:  # noqa: FBT001 - as in a trace
        """A new manager."""
        spec = self._interface.FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=None)
        group = self._interface.KVCacheGroupSpec(["layer"], spec)
        config = self._interface.KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[group])
        self.manager = self._managers.KVCacheManager(config, max_model_len, block_size, enable_caching=caching)
        self.pool = self.manager.block_pool
        self.tables = self.manager.coordinator.single_type_managers[0]
        self.block_size = block_size
        self.requests: dict[str, Any] = {}
        self.names: dict[bytes, str] = {}
        self.hashes: dict[str, bytes] = {}
        self.hasher = self._utils.get_request_block_hasher(block_size, self._hash)

    def _hash(self, contents: tuple[bytes, tuple[int, ...], tuple[Any, ...] | None]) -> bytes:
        """vLLM's hash; notes its name, and sees that equal contents have equal hashes and no others do."""
        digest: bytes = self._sha256(contents)
        parent, tokens, keys = contents
        name = hash_block_tokens(self.names.get(parent), tokens, keys)
        assert self.names.setdefault(digest, name) == name, f"{name} and {self.names[digest]} have one hash"
        assert self.hashes.setdefault(name, digest) == digest, f"{name} has two hashes"
        return digest

    def new(self, request: str, tokens: list[int]) -> None:
        """A plain request."""
        self.new_with(request, tokens, None, None, [], False)

    def new_with(self, request: str, tokens: list[int], *said: Any) -> None:
        """A request with everything that can be said of it."""
        lora, salt, features, skip = said
        self.requests[request] = self._requests.Request(
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
            block_hasher=self.hasher,
        )

    def append_tokens(self, request: str, tokens: list[int]) -> None:
        """Tokens were generated."""
        self.requests[request].append_output_token_ids(tokens)

    def keys(self, request: str) -> list[Any]:
        """The extra keys of each full block."""
        asked, item, found = self.requests[request], 0, list[Any]()
        for block in range(asked.num_tokens // self.block_size):
            start = block * self.block_size
            keys, item = self._utils.generate_block_hash_extra_keys(asked, start, start + self.block_size, item)
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
        found = self.pool.get_cached_block(self.hashes.get(name, b""), [0])
        return found[0].block_id if found else None

    def get_num_free_blocks(self) -> Any:
        """Blocks in the queue."""
        return self.pool.get_num_free_blocks()

    def get_usage(self) -> Any:
        """The share of blocks in use."""
        return round(self.manager.usage, 9)

    def state(self) -> dict[str, Any]:
        """What of vLLM's state is compared."""
        blocks, queue, cache = self.pool.blocks, self.pool.free_block_queue, self.pool.cached_block_hash_to_block._cache
        index = {self._name(key): list(found) if isinstance(found, dict) else [found] for key, found in cache.items()}
        state = {
            "free": [block.block_id for block in queue.get_all_free_blocks()],
            "back": list(self._backwards()),
            "num_free": queue.num_free_blocks,
            "null": [place for place, block in enumerate(blocks) if block.is_null],
            "ref": [None if block.is_null else block.ref_cnt for block in blocks],
            "hash": [self._name(block.block_hash) for block in blocks],
            "index": {name: [getattr(one, "block_id", one) for one in found] for name, found in index.items()},
            "tables": {key: [one.block_id for one in held] for key, held in self.tables.req_to_blocks.items() if held},
            "ncached": {key: number for key, number in self.tables.num_cached_block.items() if number},
            "requests": {
                key: [one.num_tokens, one.num_computed_tokens, [self.names[digest] for digest in one.block_hashes]]
                for key, one in self.requests.items()
            },
        }
        return {name: state[name] for name in PARTS}

    def _backwards(self) -> Iterator[int]:
        block = self.pool.free_block_queue.fake_free_list_tail.prev_free_block
        while block.prev_free_block is not None:
            yield block.block_id
            block = block.prev_free_block

    def _name(self, key: bytes | None) -> str | None:
        return None if key is None else self.names[self._utils.get_block_hash(key)]

    def apply(self, name: str, arguments: list[Any]) -> Any:
        """Do one operation and return its reply, or what was raised."""
        try:
            return getattr(self, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
            return f"{type(error).__name__}: {error}"


def serve(folder: Path) -> int:
    """The child process: a trace comes in on a line, its replies and states go out on a line."""
    install(folder)
    vllm = Vllm()
    for line in sys.stdin:
        after = [[vllm.apply(name, arguments), vllm.state()] for name, arguments in json.loads(line)]
        sys.stdout.write(json.dumps(after, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    return 0


class Child:
    """The process with vLLM."""

    def __init__(self, to_it: IO[str], from_it: IO[str]) -> None:
        self._to_it, self._from_it = to_it, from_it

    def after(self, operations: Sequence[Operation]) -> list[list[Any]]:
        """Replies and states of vLLM on a trace."""
        self._to_it.write(json.dumps([[one.name, one.arguments] for one in operations]) + "\n")
        self._to_it.flush()
        found: list[list[Any]] = json.loads(self._from_it.readline() or "[]")
        if len(found) != len(operations):
            raise RuntimeError("the process with vLLM has ended; what it said is above")
        return found


@contextmanager
def child(archive: Path) -> Iterator[Child]:
    """Start vLLM's side. Raises `NotTheArchive`."""
    with tempfile.TemporaryDirectory(prefix="vllm-source-") as folder:
        unpack(archive, Path(folder))
        command = [sys.executable, "-I", "-m", "grader.tests.trials.block_pool_peer", "--serve", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield Child(process.stdin, process.stdout)


@dataclass(slots=True)
class Comparison:
    """What was compared, and the traces as vLLM played them."""

    traces: int = 0
    """Those that agree from the first operation to the last."""
    operations: int = 0
    """Those that agree, in each trace until it differs."""
    known: int = 0
    differences: list[str] = field(default_factory=list)
    """One for each trace that has one."""
    as_vllm_had_them: list[dict[str, Any]] = field(default_factory=list)

    def add(self, trace: Played, after: list[list[Any]]) -> None:
        """Compare a trace, until it differs."""
        self.as_vllm_had_them.append(_as_frozen(trace, after))
        self.known += trace.known
        for place, (mine, theirs) in enumerate(zip(trace.after, after, strict=True)):
            both = ({"reply": reply, **state} for reply, state in (mine, theirs))
            found = _different(*both)
            if found:
                lines = [f"seed {trace.seed}:", *map(str, trace.operations[: place + 1]), *found]
                self.differences.append("\n".join(lines))
                return
            self.operations += 1
        self.traces += 1


def _different(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [f"-> {key}: vLLM {theirs[key]}, the reference {mine[key]}" for key in mine if mine[key] != theirs[key]]


def _as_frozen(trace: Played, after: list[list[Any]]) -> dict[str, Any]:
    """A trace as JSON: of each state only the parts that are not as before."""
    changes, before = list[list[Any]](), dict[str, Any]()
    for reply, state in after:
        changes.append([reply, {name: value for name, value in state.items() if before.get(name) != value}])
        before = state
    return {"seed": trace.seed, "operations": [[one.name, one.arguments] for one in trace.operations], "after": changes}


def freeze(traces: list[dict[str, Any]], path: Path) -> None:
    """Write traces with what vLLM had; the file is packed if its name ends in `.gz`."""
    text = json.dumps({"vllm": ARCHIVE, "traces": traces}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def main() -> int:
    """Compare, and say how it went; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, metavar="PATH", help=f"where {ARCHIVE} is")
    parser.add_argument("--traces", type=int, default=3000, help="how many (3000)")
    parser.add_argument("--length", type=int, default=60, help="operations of each (60)")
    parser.add_argument("--without-known", action="store_true", help="leave out on what vLLM is known to differ")
    parser.add_argument("--freeze", type=Path, metavar="FILE", help="write the traces with what vLLM had")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        return serve(asked.serve)
    if asked.archive is None or not asked.archive.is_file():
        where = "--archive PATH says where it is" if asked.archive is None else "there is no such file"
        sys.stdout.write(f"skipped: this compares with vLLM's source archive, {ARCHIVE}; {where}\n")
        return 0
    comparison, numbers = Comparison(), seeds()
    try:
        with child(asked.archive) as vllm:
            for number in range(1, asked.traces + 1):
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{number} of {asked.traces}")
                trace = played(next(numbers), asked.length, without_known=asked.without_known)
                comparison.add(trace, vllm.after(trace.operations))
    except NotTheArchive as error:
        parser.error(str(error))
    if asked.freeze is not None:
        freeze(comparison.as_vllm_had_them, asked.freeze)
    sys.stdout.write(
        f"\n{comparison.traces} of {asked.traces} traces agree, {comparison.operations} operations\n"
        + (f"{comparison.known} operations with the known difference were left out\n" if asked.without_known else "")
        + "".join(f"the first difference: {found}\n" for found in comparison.differences[:1])
    )
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
