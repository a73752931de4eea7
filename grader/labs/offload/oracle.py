"""The operations of case files, played on the block manager, the engine and the runner of Parts 1 to 3.

A state has blocks, tables, offloaded lengths, and the layers and numbers of rows that the last call loaded. Of the
contents of memory a state only lists what is wrong. A right program has nothing wrong, so these lists are empty here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from grader.labs.offload.device import PARTS, STORAGE, ModelSizes
from reference.offload.block_manager import HybridKVCacheManager, SeqId
from reference.offload.engine import OffloadEngine, Range
from reference.offload.runner import ModelRunner
from reference.operation import Operation, Reply
from reference.oracle import CannotGoOn, Engine, Plain

_LEFT_OPEN = "the handout says nothing about"


@dataclass(eq=False)
class Buf:
    """A buffer of the device, without its content."""

    rows: int
    width: int
    pinned: bool


class Copies:
    """A device that records copies between ranges. Its other calls do nothing."""

    def __init__(self) -> None:
        self.copies: list[tuple[Range, Range]] = []

    def alloc(self, rows: int, width: int, _: object) -> Buf:
        """Return device memory."""
        return Buf(rows, width, pinned=False)

    def alloc_pinned(self, rows: int, width: int) -> Buf:
        """Return pinned memory of the host."""
        return Buf(rows, width, pinned=True)

    def copy(self, dst: Range | Buf, src: Range | Buf, _: object) -> None:
        """Record a copy, if it is between ranges."""
        if isinstance(dst, tuple) and isinstance(src, tuple):
            self.copies.append((dst, src))

    def __getattr__(self, _: str) -> Callable[..., Any]:
        return lambda *_, **__: None


def _passed(sentence: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that calls a method of the manager or of the runner."""
    of_runner = method.__qualname__.startswith(ModelRunner.__name__)

    def operation(offload: Offload, *arguments: Any) -> Any:
        offload.because(sentence)
        return method(offload.running if of_runner else offload.managing, *arguments)

    return operation


class Offload(Engine):
    """The oracle: a manager alone, an engine alone, or a runner with both."""

    def __init__(self) -> None:
        self.kind = ""
        self.settings: list[int] = []
        self.device = Copies()
        self.alone = HybridKVCacheManager(1, 1)
        self.engine_alone: OffloadEngine | None = None
        self.model_runner: ModelRunner | None = None
        self.storage: dict[str, Plain] = {}
        self.read_by: dict[int, set[tuple[int, int]]] = {}
        """For each loaded buffer, until it is used: layer and block of the rows that its load reads."""
        self.loaded: dict[int, int] = {}
        """For each buffer, the number of tokens of its last load."""

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. The device records the copies of this operation."""
        self.device.copies.clear()
        self.storage = {}
        return super().apply(operation)

    # Part 1

    def manager(self, num_cpu_blocks: int, block_size: int) -> None:
        """Do the handout's call `HybridKVCacheManager(num_cpu_blocks, block_size)`."""
        self.because("Part 1/manager")
        self.alone = HybridKVCacheManager(num_cpu_blocks, block_size)
        self.kind, self.settings = "manager", [num_cpu_blocks, block_size]

    def another_manager(self, num_cpu_blocks: int, block_size: int, num_tokens: int) -> list[Plain]:
        """Make a second manager; return its table and queue after an allocation. The first one stays the same."""
        self.because("Part 1/manager")
        other = HybridKVCacheManager(num_cpu_blocks, block_size)
        return [other.allocate_cpu_only("z", num_tokens), list(other.free_cpu_blocks)]

    allocate = _passed("Part 1/allocate", HybridKVCacheManager.allocate_cpu_only)
    can_append = _passed("Part 1/append", HybridKVCacheManager.can_append)
    may_append = _passed("Part 1/append", HybridKVCacheManager.may_append)
    mark = _passed("Part 1/mark", HybridKVCacheManager.mark_offloaded)
    deallocate = _passed("Part 1/deallocate", HybridKVCacheManager.deallocate)
    blocks = _passed("Part 1/getters", HybridKVCacheManager.get_all_cpu_blocks)
    prefilled = _passed("Part 1/getters", HybridKVCacheManager.get_prefilled_cpu_blocks)
    prefill_len = _passed("Part 1/getters", HybridKVCacheManager.get_prefill_len)
    decode_start = _passed("Part 1/getters", HybridKVCacheManager.get_decode_start_pos)

    # Part 2

    def engine(self, layers: int, blocks: int, block_size: int, buffers: int, max_seq_len: int) -> None:
        """Do the handout's call `OffloadEngine(Device(cfg), cfg)`."""
        self.because("Part 2/storage")
        self._begin("engine", [layers, blocks, block_size, buffers, max_seq_len])
        self.storage = self._described()

    def offload(self, layer: int, num_tokens: int, ids: tuple[int, ...]) -> None:
        """Do the handout's call `offload_layer_kv_to_cpu` with rows that the caller frees at once."""
        self.because("Part 2/offload")
        k, v = (Buf(max(num_tokens, 1), self._engine.cfg.kv_width, pinned=False) for _ in "kv")
        self._engine.offload_layer_kv_to_cpu(layer, k, v, ids, num_tokens)
        self._check_there(layer=layer, blocks=ids)
        self._check_not_read({(layer, block) for block in ids[: self._needed(num_tokens)]})

    def load(self, buffer: int, layer: int, ids: tuple[int, ...], num_tokens: int) -> None:
        """Do the handout's call `load_layer_kv_to_buffer`."""
        self.because("Part 2/load")
        self._check_there(layer=layer, buffer=buffer)
        self._engine.load_layer_kv_to_buffer(buffer, layer, ids, num_tokens)
        self._check_there(blocks=ids)
        if buffer in self.read_by:
            raise CannotGoOn(f"{_LEFT_OPEN} two loads of buffer {buffer} without a use between them")
        self.loaded[buffer] = num_tokens
        self.read_by[buffer] = {(layer, block) for block in ids[: self._needed(num_tokens)]}

    def use(self, buffer: int, num_tokens: int) -> list[Plain]:
        """Do `wait_buffer_load` and `get_buffer_kv`, read both ranges, then do `record_buffer_compute_done`."""
        self.because("Part 2/get-buffer")
        self._check_there(buffer=buffer)
        if num_tokens > self.loaded.get(buffer, num_tokens):
            raise CannotGoOn(f"{_LEFT_OPEN} more tokens of buffer {buffer} than the {self.loaded[buffer]} loaded")
        self._engine.wait_buffer_load(buffer)
        ranges = self._engine.get_buffer_kv(buffer, num_tokens)
        self._engine.record_buffer_compute_done(buffer)
        self.read_by.pop(buffer, None)
        return self._named(ranges)

    def store(self, layer: int, pos: int) -> None:
        """Do the handout's call `store_decode_kv` with rows that the caller frees at once."""
        self.because("Part 2/store")
        k, v = (Buf(1, self._engine.cfg.kv_width, pinned=False) for _ in "kv")
        self._engine.store_decode_kv(layer, pos, k, v)
        self._check_there(layer=layer)

    def decode_rows(self, layer: int, start: int, end: int) -> list[Plain]:
        """Do the handout's call `get_decode_kv`."""
        self.because("Part 2/get-decode")
        self._check_there(layer=layer)
        return self._named(self._engine.get_decode_kv(layer, start, end))

    def flush(self, block: int, start: int) -> None:
        """Do the handout's call `offload_decode_buffer`."""
        self.because("Part 2/flush")
        self._engine.offload_decode_buffer(block, start)
        self._check_there(blocks=(block,))
        self._check_not_read({(layer, block) for layer in range(self._engine.cfg.num_layers)})

    # Part 3

    def runner(self, layers: int, blocks: int, block_size: int, buffers: int, max_seq_len: int) -> None:
        """Do the handout's call `ModelRunner(Device(cfg), cfg)`."""
        self.because("Part 3/runner")
        self._begin("runner", [layers, blocks, block_size, buffers, max_seq_len])
        self.storage = self._described()

    def another_runner(self, seq: SeqId, tokens: tuple[int, ...]) -> list[Plain]:
        """Return the table and queue of a second runner after a prefill, and its queue after finish."""
        self.because("Part 3/prefill")
        other = ModelRunner(Copies(), self.running.cfg)
        other.run_layerwise_offload_prefill(seq, tokens)
        after = [other.manager.get_all_cpu_blocks(seq), list(other.manager.free_cpu_blocks)]
        other.finish(seq)
        return [*after, list(other.manager.free_cpu_blocks)]

    prefill = _passed("Part 3/prefill", ModelRunner.run_layerwise_offload_prefill)
    decode = _passed("Part 3/decode", ModelRunner.run_layerwise_offload_decode)
    finish = _passed("Part 3/finish", ModelRunner.finish)

    # The state

    def state(self) -> dict[str, Plain]:
        """Return blocks, tables, offloaded lengths, what the last call loaded, and empty lists of what is wrong."""
        manager, running = self.managing, self.model_runner.running if self.model_runner is not None else []
        loads, rows = self._loads()
        tracking: dict[str, Plain] = {
            str(seq): [manager.get_prefilled_cpu_blocks(seq), manager.offloaded[seq], manager.get_decode_start_pos(seq)]
            for seq in manager.block_tables
        }
        known = self.kind in ("manager", "runner")
        wrong: dict[str, Plain] = {name: [] for name in PARTS}
        return {
            **wrong,
            "kind": self.kind,
            "settings": list(self.settings),
            "free": list(manager.free_cpu_blocks) if known else [],
            "tables": {str(seq): list(table) for seq, table in manager.block_tables.items()},
            "tracking": tracking,
            "lengths": [[seq, length] for seq, length in manager.lengths.items()],
            "running": list(running),
            "storage": self.storage,
            "loads": loads,
            "load_rows": rows,
            "calls": 0,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state: what the program's manager reported, and the lengths that the caller counted."""
        self.__init__()  # type: ignore[misc]  # forgets what was before
        self.kind = state["kind"]
        if self.kind == "manager":
            self.alone = HybridKVCacheManager(*state["settings"])
            self.settings = list(state["settings"])
        elif self.kind:
            self._begin(self.kind, list(state["settings"]))
        manager = self.managing
        manager.free_cpu_blocks = [_number(block) for block in state["free"]]
        for seq, length in state["lengths"]:
            if str(seq) not in state["tables"] or str(seq) not in state["tracking"]:
                raise CannotGoOn(f"nothing is known of the sequence {seq}")
            manager.block_tables[seq] = [_number(block) for block in state["tables"][str(seq)]]
            manager.lengths[seq], manager.offloaded[seq] = length, _number(state["tracking"][str(seq)][1])
        if self.model_runner is not None:
            self.model_runner.running = list(state["running"])
            self.model_runner.length = next((manager.lengths[seq] for seq in state["running"]), 0)

    @property
    def managing(self) -> HybridKVCacheManager:
        """The manager alone, or the manager of the runner."""
        return self.alone if self.model_runner is None else self.model_runner.manager

    @property
    def running(self) -> ModelRunner:
        """The runner. Raises `CannotGoOn` if there is none."""
        if self.model_runner is None:
            raise CannotGoOn("there is no runner")
        return self.model_runner

    @property
    def _engine(self) -> OffloadEngine:
        if self.engine_alone is None:
            raise CannotGoOn("there is no engine")
        return self.engine_alone

    def _check_there(self, *, layer: int = 0, buffer: int = 0, blocks: tuple[int, ...] = ()) -> None:
        """Raise `CannotGoOn` for a part that the storage does not have: the handout says nothing about it."""
        config = self._engine.cfg
        named = [("layer", layer, config.num_layers), ("buffer", buffer, config.num_kv_buffers)]
        for word, number, count in [*named, *(("block", block, config.num_cpu_blocks) for block in blocks)]:
            if not 0 <= number < count:
                raise CannotGoOn(f"there is no {word} {number}: the {word}s are 0 to {count - 1}")

    def _needed(self, num_tokens: int) -> int:
        """Return the number of blocks for `num_tokens` tokens."""
        return -(-num_tokens // int(self._engine.cfg.block_size))

    def _check_not_read(self, written: set[tuple[int, int]]) -> None:
        """Raise `CannotGoOn` for a write to blocks from which an unused buffer was loaded (handout, "Left to you")."""
        for buffer, read in self.read_by.items():
            if written & read:
                raise CannotGoOn(
                    f"{_LEFT_OPEN} a write into blocks that the load of buffer {buffer} reads; use it first"
                )

    def _begin(self, kind: str, settings: list[int]) -> None:
        self.kind, self.settings = kind, settings
        self.read_by.clear()
        self.loaded.clear()
        config = ModelSizes(*settings)
        self.model_runner = ModelRunner(self.device, config) if kind == "runner" else None
        runner = self.model_runner
        self.engine_alone = OffloadEngine(self.device, config) if runner is None else runner.engine

    def _buffers(self) -> dict[str, Buf]:
        engine = self._engine
        return {name: getattr(engine, name) for name in STORAGE}

    def _named(self, ranges: tuple[Range, Range]) -> list[Plain]:
        """Return ranges as [name of the buffer, from, to]."""
        names = {id(buf): name for name, buf in self._buffers().items()}
        return [[names[id(buf)], lo, hi] for buf, lo, hi in ranges]

    def _described(self) -> dict[str, Plain]:
        """Return rows, width and place of each buffer of the storage, and what else was allocated."""
        shown: dict[str, Plain] = {
            name: [buf.rows, buf.width, "pinned" if buf.pinned else "compute_stream"]
            for name, buf in self._buffers().items()
        }
        if self.model_runner is not None:
            shown["logits"] = [1, self.model_runner.cfg.vocab, "pinned"]
        return {**shown, "others": []}

    def _loads(self) -> tuple[list[Plain], dict[str, Plain]]:
        """Return which layer was loaded into which buffer, in order, and how many rows of its keys and values."""
        loads: list[Plain] = []
        rows: dict[str, Plain] = {}
        if self.engine_alone is None:
            return loads, rows
        engine, cfg = self.engine_alone, self.engine_alone.cfg
        for (_, place, _), (source, row, end) in self.device.copies:
            if source not in (engine.k_cache_cpu, engine.v_cache_cpu):
                continue
            layer = row // (cfg.num_cpu_blocks * cfg.block_size)
            if [layer, place // cfg.max_seq_len] not in loads:
                loads.append([layer, place // cfg.max_seq_len])
            key = f"{layer} {'k' if source is engine.k_cache_cpu else 'v'}"
            before = rows.get(key, 0)
            assert isinstance(before, int)
            rows[key] = before + end - row
        return loads, rows


def circumstances(before: dict[str, Any], operation: Operation, _: Reply, __: dict[str, Any]) -> Iterator[str]:
    """Yield words by which known mistakes recognise a decode, beyond the sentence that decided the call."""
    if operation.name == "decode" and before["kind"] == "runner":
        layers, _blocks, size, buffers, _longest = before["settings"]
        seq = operation.arguments[0]
        yield from ("more-buffers",) if buffers > layers else ()
        if before["running"] == [seq] and dict(before["lengths"])[seq] % size == size - 1:
            yield "flushes"


def _number(value: object) -> int:
    """Return a number of a program's state. Raises `CannotGoOn` for anything else."""
    if type(value) is not int:
        raise CannotGoOn(f"{value!r} is no number")
    return value
