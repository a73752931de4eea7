"""How an engine of ours is compared with files of vLLM: random traces are played on both sides, vLLM's in a child.

A trial gives a `PeerTrial`: how vLLM does the operations of its handout, and how the engine plays the trace of a seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

from grader.tests.support.vllm_source import ARCHIVE, NotTheArchive, install, unpack
from reference.block_pool.requests import hash_block_tokens
from reference.operation import Operation


@dataclass(slots=True)
class Played:
    """A trace of a seed, with the reply and the compared parts of the state that the engine had after each."""

    seed: int
    operations: list[Operation] = field(default_factory=list)
    after: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    known: int = 0
    """Operations that were left out because vLLM is known to differ."""
    met: Counter[str] = field(default_factory=Counter)
    """What occurred, and how often, if the trial counts it."""


class Play(Protocol):
    """How a trial plays the trace of a seed on the engine."""

    def __call__(self, seed: int, length: int, *, without_known: bool) -> Played:
        """Play so much of it, perhaps without what vLLM is known to do otherwise."""


class VllmSide(ABC):
    """vLLM with one full-attention group; a subclass has one method for each operation of the handout's driver."""

    without_known = False
    """Whether vLLM is asked without what it is known to do otherwise."""

    def __init__(self) -> None:
        self.utils = import_module("vllm.v1.core.kv_cache_utils")
        self.interface = import_module("vllm.v1.kv_cache_interface")
        self.requests_module = import_module("vllm.v1.request")
        self.names: dict[bytes, str] = {}
        self.hashes: dict[str, bytes] = {}
        self._sha256 = import_module("vllm.utils.hashing").sha256
        self.utils.init_none_hash(self._sha256)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What of vLLM's state is compared."""

    def apply(self, name: str, arguments: list[Any]) -> Any:
        """Do one operation and return its reply, or what was raised."""
        try:
            return getattr(self, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
            return f"{type(error).__name__}: {error}"

    def config(self, num_blocks: int, block_size: int) -> Any:
        """The configuration of a cache; forgets the hashes of the one before."""
        self.names, self.hashes = {}, {}
        spec = self.interface.FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=None)
        group = self.interface.KVCacheGroupSpec(["layer"], spec)
        return self.interface.KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[group])

    def hasher(self, block_size: int) -> Any:
        """What a request hashes its blocks with."""
        return self.utils.get_request_block_hasher(block_size, self._hash)

    def _hash(self, contents: tuple[bytes, tuple[int, ...], tuple[Any, ...] | None]) -> bytes:
        """vLLM's hash; notes its name, and sees that equal contents have equal hashes and no others do."""
        digest: bytes = self._sha256(contents)
        parent, tokens, keys = contents
        name = hash_block_tokens(self.names.get(parent), tokens, keys)
        assert self.names.setdefault(digest, name) == name, f"{name} and {self.names[digest]} have one hash"
        assert self.hashes.setdefault(name, digest) == digest, f"{name} has two hashes"
        return digest

    def name_of(self, key: bytes | None) -> str | None:
        """The name of the hash of a block or of the index."""
        return None if key is None else self.names[self.utils.get_block_hash(key)]

    def pool(self, manager: Any) -> dict[str, Any]:
        """The queue, the blocks, the index and the tables of a manager, named as in the engine's state."""
        pool, tables = manager.block_pool, manager.coordinator.single_type_managers[0]
        queue, cache = pool.free_block_queue, pool.cached_block_hash_to_block._cache
        index = {
            self.name_of(key): list(entry) if isinstance(entry, dict) else [entry.block_id]
            for key, entry in cache.items()
        }
        return {
            "free": [block.block_id for block in queue.get_all_free_blocks()],
            "back": list(_backwards(queue)),
            "num_free": queue.num_free_blocks,
            "null": [place for place, block in enumerate(pool.blocks) if block.is_null],
            "ref": [None if block.is_null else block.ref_cnt for block in pool.blocks],
            "hash": [self.name_of(block.block_hash) for block in pool.blocks],
            "index": index,
            "tables": {name: [block.block_id for block in held] for name, held in tables.req_to_blocks.items() if held},
            "ncached": {name: number for name, number in tables.num_cached_block.items() if number},
        }


def _backwards(queue: Any) -> Iterator[int]:
    block = queue.fake_free_list_tail.prev_free_block
    while block.prev_free_block is not None:
        yield block.block_id
        block = block.prev_free_block


@dataclass(slots=True)
class Comparison:
    """What was compared, and the traces as vLLM played them."""

    traces: int = 0
    """Those that agree from the first operation to the last."""
    operations: int = 0
    """Those that agree, in each trace until it differs."""
    known: int = 0
    met: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    """One for each trace that has one."""
    as_vllm_had_them: list[dict[str, Any]] = field(default_factory=list)

    def add(self, trace: Played, after: list[list[Any]]) -> None:
        """Compare a trace, until it differs."""
        self.as_vllm_had_them.append(_as_frozen(trace, after))
        self.known += trace.known
        self.met += trace.met
        for place, (mine, theirs) in enumerate(zip(trace.after, after, strict=True)):
            both = ({"reply": reply, **state} for reply, state in (mine, theirs))
            different = _different(*both)
            if different:
                lines = [f"seed {trace.seed}:", *map(str, trace.operations[: place + 1]), *different]
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
    return {
        "seed": trace.seed,
        "operations": [[each.name, each.arguments] for each in trace.operations],
        "after": changes,
    }


def _freeze(traces: list[dict[str, Any]], path: Path) -> None:
    """Write traces with what vLLM had; the file is packed if its name ends in `.gz`."""
    text = json.dumps({"vllm": ARCHIVE, "traces": traces}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


@dataclass(frozen=True, slots=True)
class Child:
    """The process with vLLM."""

    to_it: IO[str]
    from_it: IO[str]

    def after(self, operations: Sequence[Operation]) -> list[list[Any]]:
        """Replies and states of vLLM on a trace."""
        self.to_it.write(json.dumps([[each.name, each.arguments] for each in operations]) + "\n")
        self.to_it.flush()
        after: list[list[Any]] = json.loads(self.from_it.readline() or "[]")
        if len(after) != len(operations):
            raise RuntimeError("the process with vLLM has ended; what it said is above")
        return after


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTrial:
    """A trial that compares an engine with vLLM. `run` is its program."""

    module: str
    """The trial's own, which is started with `--serve FOLDER` in the child."""
    documentation: str
    side: Callable[[], VllmSide]
    play: Play
    seeds: Iterable[int]
    traces: int
    length: int
    unit: str
    """What the length counts."""

    def run(self) -> int:
        """Compare, and say how it went; returns the exit code."""
        parser = self._parser()
        asked = parser.parse_args()
        if asked.serve is not None:
            return self._serve(asked.serve, without_known=asked.without_known)
        if asked.archive is None or not asked.archive.is_file():
            where = "--archive PATH says where it is" if asked.archive is None else "there is no such file"
            sys.stdout.write(f"skipped: this compares with vLLM's source archive, {ARCHIVE}; {where}\n")
            return 0
        comparison, seeds = Comparison(), iter(self.seeds)
        try:
            with self._child(asked.archive, without_known=asked.without_known) as vllm:
                for number in range(1, asked.traces + 1):
                    if sys.stderr.isatty():
                        sys.stderr.write(f"\r{number} of {asked.traces}")
                    trace = self.play(next(seeds), asked.length, without_known=asked.without_known)
                    comparison.add(trace, vllm.after(trace.operations))
        except NotTheArchive as error:
            parser.error(str(error))
        if asked.freeze is not None:
            _freeze(comparison.as_vllm_had_them, asked.freeze)
        met = ", ".join(f"{count} {what}" for what, count in sorted(comparison.met.items()))
        sys.stdout.write(
            f"\n{comparison.traces} of {asked.traces} traces agree, {comparison.operations} operations\n"
            + (f"in them {met}\n" if met else "")
            + (f"{comparison.known} operations with a known difference were left out\n" if asked.without_known else "")
            + "".join(f"the first difference: {text}\n" for text in comparison.differences[:1])
        )
        return 1 if comparison.differences else 0

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            description=self.documentation, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--archive", type=Path, metavar="PATH", help=f"where {ARCHIVE} is")
        parser.add_argument("--traces", type=int, default=self.traces, help=f"how many ({self.traces})")
        parser.add_argument("--length", type=int, default=self.length, help=f"{self.unit} of each ({self.length})")
        parser.add_argument("--without-known", action="store_true", help="leave out on what vLLM is known to differ")
        parser.add_argument("--freeze", type=Path, metavar="FILE", help="write the traces with what vLLM had")
        parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
        return parser

    def _serve(self, folder: Path, *, without_known: bool) -> int:
        """The child process: a trace comes in on a line, its replies and states go out on a line."""
        install(folder)
        side = self.side()
        side.without_known = without_known
        for line in sys.stdin:
            after = [[side.apply(name, arguments), side.state()] for name, arguments in json.loads(line)]
            sys.stdout.write(json.dumps(after, separators=(",", ":")) + "\n")
            sys.stdout.flush()
        return 0

    @contextmanager
    def _child(self, archive: Path, *, without_known: bool) -> Iterator[Child]:
        """Start vLLM's side. Raises `NotTheArchive`."""
        with tempfile.TemporaryDirectory(prefix="vllm-source-") as folder:
            unpack(archive, Path(folder))
            command = [sys.executable, "-I", "-m", self.module, "--serve", folder]
            command += ["--without-known"] if without_known else []
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                yield Child(process.stdin, process.stdout)
