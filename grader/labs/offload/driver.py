"""How the calls of the offload assignment are made, and what is read of a submission after each.

A submission gets a device that writes a log; `derive` interprets the log in the grader's process.
"""

from __future__ import annotations

from typing import Annotated, Any

import offload as submission
from offload_device import Buf, Config, Device, DeviceError

_STORAGE = ["k_cache_cpu", "v_cache_cpu", "layer_k_cache", "layer_v_cache", "decode_k_buffer", "decode_v_buffer"]


class World:
    """The objects of the test program that calls a submission, and what this test program remembers."""

    def __init__(self) -> None:
        self.cfg: Any = None
        self.dev: Any = None
        self.manager: Any = None
        self.engine: Any = None
        self.runner: Any = None
        self.seen: list[Any] = []  # the ids of sequences
        self.written_through: list[Any] = []  # what a manager held before it changed with a list that it had returned
        self.entries_read = self.filled_rows = 0

    def begin(self, *sizes: int) -> None:
        """Make a new device, and forget everything from before."""
        self.cfg, self.dev = Config(*sizes), Device(Config(*sizes))
        self.manager = self.engine = self.runner = None
        self.entries_read = self.filled_rows = 0
        self.seen.clear()

    def see(self, seq: Any) -> Any:
        """Remember the id of a sequence, and return it."""
        if seq not in self.seen:
            self.seen.append(seq)
        return seq

    def filled(self, rows: int) -> Any:
        """Return a buffer with rows that the grader knows, filled on compute_stream."""
        self.filled_rows += 1
        dev, stream = self.dev, self.engine.compute_stream
        buf = dev.alloc(rows, self.cfg.kv_width, stream)
        dev._enter("fill", [dev._stream(stream)], {"out": dev._range(buf), "number": self.filled_rows})
        return buf

    def release(self, *buffers: Any) -> None:
        for buf in buffers:
            _guarded(self.dev.free, buf)

    def probe(self, ranges: Any) -> None:
        """Make a kernel read two ranges, of keys and of values."""
        try:
            k, v = (self.dev._on_device(part) for part in ranges)
        except (DeviceError, TypeError, ValueError):
            return  # what is returned is wrong, and the reply shows it
        self.dev._enter("probe", [self.dev._stream(self.engine.compute_stream)], {"k": [k], "v": [v]})

    def its_manager(self) -> Any:
        return self.runner.manager if self.runner is not None else self.manager

    def free_blocks(self) -> list[Any]:
        return list(self.its_manager().free_cpu_blocks) if self.its_manager() is not None else []

    def tables(self) -> dict[Any, Any]:
        pairs = dict(self.its_manager().block_tables).items() if self.its_manager() is not None else ()
        return {seq: list(table) for seq, table in pairs}

    def tracking(self) -> dict[Any, Any]:
        """Return for each sequence its prefilled blocks, P, and the first row of the decode buffers in use."""
        known = self.its_manager()
        return {
            seq: [
                list(known.get_prefilled_cpu_blocks(seq)),
                known.get_prefill_len(seq),
                known.get_decode_start_pos(seq),
            ]
            for seq in (self.seen if known is not None else ())
            if seq in known.block_tables
        }

    def all_blocks(self) -> Any:
        """Return all that the manager says of its blocks; None if a call of the manager fails."""
        try:
            return self.free_blocks(), self.tables(), self.tracking()
        except Exception:
            return None

    def lists_shared(self) -> bool:
        """Return whether the manager changed when a returned list was changed, since the last call of this method."""
        shared = len(self.written_through) > 0
        self.written_through.clear()
        return shared

    def handles(self) -> dict[str, Any]:
        """Return the device's numbers of the engine's buffers and of the engine's stream."""
        if self.engine is None:
            return {}
        numbers = {name: _place_of(getattr(self.engine, name, None), self.dev._buffers) for name in _STORAGE}
        numbers["compute_stream"] = _place_of(getattr(self.engine, "compute_stream", None), self.dev._streams)
        if self.runner is not None:
            numbers["logits"] = _place_of(getattr(self.runner, "logits", None), self.dev._buffers)
        return numbers

    def new_entries(self) -> list[Any]:
        """Return the entries that the device has logged since the last call of this method."""
        entries: list[Any] = self.dev._log[self.entries_read :] if self.dev is not None else []
        self.entries_read += len(entries)
        return entries


def _guarded(function: Any, *arguments: Any) -> Any:
    """Make a call: an error of the device ends the program, and is not taken for a refusal."""
    try:
        return function(*arguments)
    except DeviceError as error:
        raise BufferError(f"DeviceError: {error}").with_traceback(error.__traceback__) from None


def _place_of(item: Any, among: list[Any]) -> Any:
    """Return the index of this object, compared by identity; "?" if it is not in the list."""
    return None if item is None else next((place for place, other in enumerate(among) if other is item), "?")


def _ranges_of(world: World, ranges: Any) -> Any:
    """Return two ranges as [name of the buffer, from, to]."""
    return [_named(world.engine, part) for part in ranges] if isinstance(ranges, list | tuple) else ranges


def _named(engine: Any, part: Any) -> list[Any]:
    buf, low, high = (part, 0, part.rows) if type(part) is Buf else part
    return [next((name for name in _STORAGE if getattr(engine, name, None) is buf), "?"), low, high]


def _given_list(world: World, result: Any) -> Any:
    """Return a copy of a returned list, and overwrite the list: it belongs to the caller.

    If the manager changes with the list, note this, and restore the list for the calls that follow.
    """
    items = list(result) if type(result) in (list, tuple) else result
    if type(result) is list:
        before = world.all_blocks()
        result[:] = [-7, -7]
        if world.all_blocks() != before:
            world.written_through.append(before)
            result[:] = items
    return items


Seq = Annotated[int | str, "a word or a number"]
NumBlocks = Annotated[int, -9, 999]
BlockSize = Annotated[int, -9, 99]
NumTokens = Annotated[int, -9, 9999]
Layers = Annotated[int, 1, 8]
Room = Annotated[int, 1, 64]
Rows = Annotated[int, 1, 16]
Buffers = Annotated[int, 1, 12]
Longest = Annotated[int, 1, 99]
Layer = Annotated[int, 0, 7]
Buffer = Annotated[int, 0, 11]
Block = Annotated[int, 0, 63]
Pos = Annotated[int, -9, 99]
End = Annotated[int, 0, 99]
Token = Annotated[int, 0, 22]
Blocks = Annotated[list[int], "a list of blocks"]
Tokens = Annotated[list[int], "a list of tokens"]
Owned = Annotated[Any, _given_list]
Ranges = Annotated[Any, _ranges_of]


def manager(world: World, num_cpu_blocks: NumBlocks, block_size: BlockSize) -> Annotated[None, ValueError]:
    """Part 1."""
    world.manager = submission.HybridKVCacheManager(num_cpu_blocks, block_size)


def another_manager(world: World, num_cpu_blocks: NumBlocks, block_size: BlockSize, num_tokens: NumTokens) -> Any:
    other = submission.HybridKVCacheManager(num_cpu_blocks, block_size)
    table = list(other.allocate_cpu_only("z", num_tokens))
    return [table, list(other.free_cpu_blocks)]


def allocate(world: World, seq: Seq, num_tokens: NumTokens) -> Annotated[Owned, ValueError, RuntimeError]:
    return world.manager.allocate_cpu_only(world.see(seq), num_tokens)


def can_append(world: World, seq: Seq) -> Annotated[Any, KeyError]:
    return world.manager.can_append(seq)


def may_append(world: World, seq: Seq) -> Annotated[Any, KeyError, RuntimeError]:
    return world.manager.may_append(seq)


def mark(world: World, seq: Seq, num_tokens: NumTokens) -> Annotated[Any, KeyError, ValueError]:
    return world.manager.mark_offloaded(seq, num_tokens)


def deallocate(world: World, seq: Seq) -> Annotated[Any, KeyError]:
    return world.manager.deallocate(seq)


def blocks(world: World, seq: Seq) -> Annotated[Owned, KeyError]:
    return world.manager.get_all_cpu_blocks(seq)


def prefilled(world: World, seq: Seq) -> Annotated[Owned, KeyError]:
    return world.manager.get_prefilled_cpu_blocks(seq)


def prefill_len(world: World, seq: Seq) -> Annotated[Any, KeyError]:
    return world.manager.get_prefill_len(seq)


def decode_start(world: World, seq: Seq) -> Annotated[Any, KeyError]:
    return world.manager.get_decode_start_pos(seq)


def engine(
    world: World, layers: Layers, blocks: Room, block_size: Rows, buffers: Buffers, max_seq_len: Longest
) -> None:
    """Part 2."""
    world.begin(layers, blocks, block_size, buffers, max_seq_len)
    world.engine = _guarded(submission.OffloadEngine, world.dev, world.cfg)


def offload(world: World, layer: Layer, num_tokens: NumTokens, ids: Blocks) -> Annotated[Any, ValueError]:
    k, v = world.filled(max(num_tokens, 1)), world.filled(max(num_tokens, 1))
    try:
        return _guarded(world.engine.offload_layer_kv_to_cpu, layer, k, v, list(ids), num_tokens)
    finally:
        world.release(k, v)


def load(world: World, buffer: Buffer, layer: Layer, ids: Blocks, num_tokens: NumTokens) -> Annotated[Any, ValueError]:
    return _guarded(world.engine.load_layer_kv_to_buffer, buffer, layer, list(ids), num_tokens)


def use(world: World, buffer: Buffer, num_tokens: NumTokens) -> Ranges:
    _guarded(world.engine.wait_buffer_load, buffer)
    ranges = world.engine.get_buffer_kv(buffer, num_tokens)
    world.probe(ranges)
    _guarded(world.engine.record_buffer_compute_done, buffer)
    return ranges


def store(world: World, layer: Layer, pos: Pos) -> Annotated[Any, ValueError]:
    k, v = world.filled(1), world.filled(1)
    try:
        return _guarded(world.engine.store_decode_kv, layer, pos, k, v)
    finally:
        world.release(k, v)


def decode_rows(world: World, layer: Layer, start: Pos, end: End) -> Ranges:
    return world.engine.get_decode_kv(layer, start, end)


def flush(world: World, block: Block, start: Pos) -> Annotated[Any, ValueError]:
    return _guarded(world.engine.offload_decode_buffer, block, start)


def runner(
    world: World, layers: Layers, blocks: Room, block_size: Rows, buffers: Buffers, max_seq_len: Longest
) -> None:
    """Part 3."""
    world.begin(layers, blocks, block_size, buffers, max_seq_len)
    world.runner = _guarded(submission.ModelRunner, world.dev, world.cfg)
    world.engine = world.runner.engine


def another_runner(world: World, seq: Seq, tokens: Tokens) -> Any:
    other = _guarded(submission.ModelRunner, Device(world.cfg), world.cfg)
    _guarded(other.run_layerwise_offload_prefill, seq, list(tokens))
    table, left = list(other.manager.block_tables[seq]), list(other.manager.free_cpu_blocks)
    other.finish(seq)
    return [table, left, list(other.manager.free_cpu_blocks)]


def prefill(world: World, seq: Seq, tokens: Tokens) -> Annotated[Any, RuntimeError, ValueError]:
    return _guarded(world.runner.run_layerwise_offload_prefill, world.see(seq), list(tokens))


def decode(world: World, seq: Seq, token: Token) -> Annotated[Any, KeyError, ValueError, RuntimeError]:
    return _guarded(world.runner.run_layerwise_offload_decode, seq, token)


def finish(world: World, seq: Seq) -> Annotated[Any, KeyError]:
    return _guarded(world.runner.finish, seq)


def _stand_in(world: World, source: str) -> None:
    """Replace the program's manager by a right one, so that only the runner is judged."""
    names: dict[str, Any] = {"Refused": _refusal}
    exec(source, names)
    world.runner.manager = names["HybridKVCacheManager"](world.cfg.num_cpu_blocks, world.cfg.block_size)


def _refusal(name: str, *_: Any) -> Exception:
    return next(error for error in (ValueError, RuntimeError, KeyError) if error.__name__ == name)()


def read(world: World) -> dict[str, Any]:
    """Return a function for each part of the state that reads it: if one fails, the others still work."""
    return {
        "free": world.free_blocks,
        "tables": world.tables,
        "tracking": world.tracking,
        "shared": world.lists_shared,
        "handles": world.handles,
        "log": world.new_entries,
    }
