"""The table of the offload assignment: how its calls are made, and what is read of a submission after each.

A submission gets a device that writes a log; what the log means is worked out in `judging`, in the grader's process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import Case, JsonValue, Number
from grader.core.picture import Arrow, Chart, ChartCell, Level, Track
from grader.core.rubric import Facet, Rule
from grader.labs.python_lab import call, python_lab, stand_in
from reference.operation import Argument, Operation, Trace

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class SeqId(JsonValue):
    """The id of a sequence: a word, or a number or text as JSON has it."""

    def read(self, word: str) -> Argument:
        """Return the id. Raises `ValueError` for another value."""
        return word if _WORD.fullmatch(word) else super().read(word)


def _ints(value: Argument) -> bool:
    return isinstance(value, tuple) and all(type(number) is int and abs(number) < 1 << 20 for number in value)


SEQ = SeqId("seq", "a word or a number", lambda value: type(value) in (int, str))
BLOCKS, SIZE, COUNT = Number("num_cpu_blocks", -9, 999), Number("block_size", -9, 99), Number("num_tokens", -9, 9999)
LAYERS, ROOM, ROWS = Number("layers", 1, 8), Number("blocks", 1, 64), Number("block_size", 1, 16)
BUFFERS, LONGEST = Number("buffers", 1, 12), Number("max_seq_len", 1, 99)
LAYER, BUFFER, BLOCK = Number("layer", 0, 7), Number("buffer", 0, 11), Number("block", 0, 63)
POS, START, END = Number("pos", -9, 99), Number("start", -9, 99), Number("end", 0, 99)
IDS, TOKENS = JsonValue("ids", "a list of blocks", _ints), JsonValue("tokens", "a list of tokens", _ints)
TOKEN = Number("token", 0, 22)


_UNKNOWN, _VALUE = ("KeyError",), ("ValueError",)
OPERATIONS = {
    "manager": call(BLOCKS, SIZE, task="Part 1", refusals=_VALUE),
    "another_manager": call(BLOCKS, SIZE, COUNT, task="Part 1"),
    "allocate": call(SEQ, COUNT, task="Part 1", refusals=("ValueError", "RuntimeError")),
    "can_append": call(SEQ, task="Part 1", refusals=_UNKNOWN),
    "may_append": call(SEQ, task="Part 1", refusals=("KeyError", "RuntimeError")),
    "mark": call(SEQ, COUNT, task="Part 1", refusals=("KeyError", "ValueError")),
    "deallocate": call(SEQ, task="Part 1", refusals=_UNKNOWN),
    "blocks": call(SEQ, task="Part 1", refusals=_UNKNOWN),
    "prefilled": call(SEQ, task="Part 1", refusals=_UNKNOWN),
    "prefill_len": call(SEQ, task="Part 1", refusals=_UNKNOWN),
    "decode_start": call(SEQ, task="Part 1", refusals=_UNKNOWN),
    "engine": call(LAYERS, ROOM, ROWS, BUFFERS, LONGEST, task="Part 2"),
    "offload": call(LAYER, COUNT, IDS, task="Part 2", refusals=_VALUE),
    "load": call(BUFFER, LAYER, IDS, COUNT, task="Part 2", refusals=_VALUE),
    "use": call(BUFFER, COUNT, task="Part 2"),
    "store": call(LAYER, POS, task="Part 2", refusals=_VALUE),
    "decode_rows": call(LAYER, START, END, task="Part 2"),
    "flush": call(BLOCK, START, task="Part 2", refusals=_VALUE),
    "runner": call(LAYERS, ROOM, ROWS, BUFFERS, LONGEST, task="Part 3"),
    "another_runner": call(SEQ, TOKENS, task="Part 3"),
    "prefill": call(SEQ, TOKENS, task="Part 3", refusals=("RuntimeError", "ValueError")),
    "decode": call(SEQ, TOKEN, task="Part 3", refusals=("KeyError", "ValueError", "RuntimeError")),
    "finish": call(SEQ, task="Part 3", refusals=_UNKNOWN),
}

MENDING = {"stand_in": call(JsonValue("source", "a text"), task="")}
_MANAGER = Path(__file__).parents[3] / "reference" / "offload" / "block_manager.py"
_OF_MANAGERS = {"table", "queue", "tracking", "lists", "error", "failing"}
"""The facets that a manager decides."""

SETUP = "from offload import HybridKVCacheManager, ModelRunner, OffloadEngine"

DEFINES = '''\
from offload_device import Buf, Config, Device, DeviceError

cfg = dev = manager = engine = runner = None
seen = []  # the ids of sequences
written_through = []  # what the manager held before it changed with a list that it had returned
entries_read = filled_rows = 0
STORAGE = ["k_cache_cpu", "v_cache_cpu", "layer_k_cache", "layer_v_cache", "decode_k_buffer", "decode_v_buffer"]


def begin(*sizes):
    """A new device; what was before is forgotten."""
    global cfg, dev, manager, engine, runner, entries_read, filled_rows
    cfg, dev = Config(*sizes), Device(Config(*sizes))
    manager = engine = runner = None
    entries_read = filled_rows = 0
    seen.clear()


def see(seq):
    """Remember an id."""
    if seq not in seen:
        seen.append(seq)
    return seq


def guarded(function, *arguments):
    """Make a call: an error of the device ends the program, it is no refusal."""
    try:
        return function(*arguments)
    except DeviceError as error:
        raise BufferError(f"DeviceError: {error}").with_traceback(error.__traceback__) from None


def filled(rows):
    """K and V of some rows that the tests know, on compute_stream."""
    return filled_buffer(rows), filled_buffer(rows)


def filled_buffer(rows):
    global filled_rows
    filled_rows += 1
    buf = dev.alloc(rows, cfg.kv_width, engine.compute_stream)
    dev._enter("fill", [dev._stream(engine.compute_stream)], {"out": dev._range(buf), "number": filled_rows})
    return buf


def probe(ranges):
    """A kernel that reads both ranges."""
    try:
        k, v = (dev._on_device(part) for part in ranges)
    except (DeviceError, TypeError, ValueError):
        return  # what is returned is wrong, and the reply shows it
    dev._enter("probe", [dev._stream(engine.compute_stream)], {"k": [k], "v": [v]})


def release(k, v):
    guarded(dev.free, k)
    guarded(dev.free, v)


def ranges_of(ranges):
    """Two ranges as [name of the buffer, from, to]."""
    return [named(part) for part in ranges] if type(ranges) in (list, tuple) else ranges


def named(part):
    buf, lo, hi = (part, 0, part.rows) if type(part) is Buf else part
    return [next((name for name in STORAGE if getattr(engine, name, None) is buf), "?"), lo, hi]


def given_list(result):
    """A returned list, which then is overwritten: it belongs to the caller.

    Where the manager changes with it, that is noted once, and undone for the calls that follow."""
    items = list(result) if type(result) in (list, tuple) else result
    if type(result) is list:
        before = all_blocks()
        result[:] = [-7, -7]
        if all_blocks() != before:
            written_through.append(before)
            result[:] = items
    return items


def all_blocks():
    """All that a manager says of its blocks; None where it cannot be asked."""
    try:
        return free_blocks(), tables(), tracking()
    except Exception:
        return None


def lists_shared():
    """Whether the manager changed with a returned list since this was read last."""
    shared = len(written_through) > 0
    written_through.clear()
    return shared


def stand_in(source):
    """Put a right manager into the place that the handout names, so that the runner is judged alone."""
    names = {"Refused": refusal}
    exec(source, names)
    runner.manager = names["HybridKVCacheManager"](cfg.num_cpu_blocks, cfg.block_size)


def refusal(name, *_):
    return next(error for error in (ValueError, RuntimeError, KeyError) if error.__name__ == name)()


def its_manager():
    return runner.manager if runner is not None else manager


def free_blocks():
    return list(its_manager().free_cpu_blocks) if its_manager() is not None else []


def tables():
    pairs = dict(its_manager().block_tables).items() if its_manager() is not None else ()
    return {seq: list(table) for seq, table in pairs}


def tracking():
    """Of each sequence the prefilled blocks, P, and the first row of the decode buffers in use."""
    known = its_manager()
    return {
        seq: [list(known.get_prefilled_cpu_blocks(seq)), known.get_prefill_len(seq), known.get_decode_start_pos(seq)]
        for seq in (seen if known is not None else ())
        if seq in known.block_tables
    }


def handles():
    """Which buffers and which stream the engine has, by their numbers on the device."""
    if engine is None:
        return {}
    numbers = {name: place_of(getattr(engine, name, None), dev._buffers) for name in STORAGE}
    numbers["compute_stream"] = place_of(getattr(engine, "compute_stream", None), dev._streams)
    if runner is not None:
        numbers["logits"] = place_of(getattr(runner, "logits", None), dev._buffers)
    return numbers


def new_entries():
    """What the device logged since it was read last."""
    global entries_read
    entries = dev._log[entries_read:] if dev is not None else []
    entries_read += len(entries)
    return entries
'''

_SIZES = "layers, blocks, block_size, buffers, max_seq_len"
_FILLED = "k, v = filled({})\ntry:\n    result = guarded({})\nfinally:\n    release(k, v)\nresult"
CALLS = {
    "manager": "manager = HybridKVCacheManager(num_cpu_blocks, block_size)",
    "another_manager": "other = HybridKVCacheManager(num_cpu_blocks, block_size)\n"
    'table = list(other.allocate_cpu_only("z", num_tokens))\n[table, list(other.free_cpu_blocks)]',
    "allocate": "manager.allocate_cpu_only(see(seq), num_tokens)",
    "can_append": "manager.can_append(seq)",
    "may_append": "manager.may_append(seq)",
    "mark": "manager.mark_offloaded(seq, num_tokens)",
    "deallocate": "manager.deallocate(seq)",
    "blocks": "manager.get_all_cpu_blocks(seq)",
    "prefilled": "manager.get_prefilled_cpu_blocks(seq)",
    "prefill_len": "manager.get_prefill_len(seq)",
    "decode_start": "manager.get_decode_start_pos(seq)",
    "engine": f"begin({_SIZES})\nengine = guarded(OffloadEngine, dev, cfg)",
    "offload": _FILLED.format(
        "max(num_tokens, 1)", "engine.offload_layer_kv_to_cpu, layer, k, v, list(ids), num_tokens"
    ),
    "load": "guarded(engine.load_layer_kv_to_buffer, buffer, layer, list(ids), num_tokens)",
    "use": "guarded(engine.wait_buffer_load, buffer)\nranges = engine.get_buffer_kv(buffer, num_tokens)\n"
    "probe(ranges)\nguarded(engine.record_buffer_compute_done, buffer)\nranges",
    "store": _FILLED.format("1", "engine.store_decode_kv, layer, pos, k, v"),
    "decode_rows": "engine.get_decode_kv(layer, start, end)",
    "flush": "guarded(engine.offload_decode_buffer, block, start)",
    "runner": f"begin({_SIZES})\nrunner = guarded(ModelRunner, dev, cfg)\nengine = runner.engine",
    "another_runner": "other = guarded(ModelRunner, Device(cfg), cfg)\n"
    "guarded(other.run_layerwise_offload_prefill, seq, list(tokens))\n"
    "table, left = list(other.manager.block_tables[seq]), list(other.manager.free_cpu_blocks)\n"
    "other.finish(seq)\n[table, left, list(other.manager.free_cpu_blocks)]",
    "prefill": "guarded(runner.run_layerwise_offload_prefill, see(seq), list(tokens))",
    "decode": "guarded(runner.run_layerwise_offload_decode, seq, token)",
    "finish": "guarded(runner.finish, seq)",
    "stand_in": "stand_in(source)",
}
GIVES = {
    **dict.fromkeys(("allocate", "blocks", "prefilled"), "given_list"),
    **dict.fromkeys(("use", "decode_rows"), "ranges_of"),
}
READS = {
    "free": "free_blocks()",
    "tables": "tables()",
    "tracking": "tracking()",
    "shared": "lists_shared()",
    "handles": "handles()",
    "log": "new_entries()",
}

FACETS = (
    Facet("error", path="accepted"),
    Facet("reply", path="reply"),
    Facet("failing", path="refused"),
    Facet("table", per="sequence", path="state.tables", title="blocks"),
    Facet("queue", path="state.free", title="free blocks, head to tail"),
    Facet("tracking", per="sequence", title="prefilled blocks, P, start"),
    Facet("storage", per="buffer", title="rows, width, place", of_call=True),
    Facet("lists", sentences=True, title="lists given away"),
    Facet("cpu", sentences=True, title="CPU cache"),
    Facet("decode", sentences=True, title="decode buffers"),
    Facet("flush", sentences=True),
    Facet("ring", path="state.loads", title="[layer, buffer] of each load", of_call=True),
    Facet("ring", per="layer and cache", path="state.load_rows", title="rows loaded", of_call=True),
    Facet("ring", path="state.ring", sentences=True, title="ring"),
    Facet("race-free", path="state.race_free", sentences=True, title="race on freed memory"),
    Facet("race-workspace", path="state.race_workspace", sentences=True, title="race on workspace"),
    Facet("race-reload", path="state.race_reload", sentences=True, title="race of a load into the ring"),
    Facet("race-ring", path="state.race_ring", sentences=True, title="race on the ring"),
    Facet("race-cache", path="state.race_cache", sentences=True, title="race on the CPU cache"),
    Facet("race-decode", path="state.race_decode", sentences=True, title="race on the decode buffers"),
    Facet("race-logits", path="state.race_logits", sentences=True, title="race on the host's logits"),
    Facet("overlap", sentences=True),
    Facet("memory-layers", path="state.memory_layers", sentences=True, title="device memory for K/V"),
    Facet("memory-left", path="state.memory_left", sentences=True, title="memory left behind"),
    Facet("memory", sentences=True, title="device memory"),
    Facet("values", sentences=True),
    Facet("logits", sentences=True),
    Facet("calls", title="device calls of a call that raised", of_call=True),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        globals(),
        "offload",
        "Layer-wise CPU offload of the KV cache",
        "grader.labs.offload.oracle:Offload",
        traces="grader.labs.offload.traces",
        circumstances="grader.labs.offload.oracle:circumstances",
        given={"offload_device": Path(__file__).parent / "given" / "offload_device.py"},
        invariants=broken,
        charts=charts,
        derive="grader.labs.offload.derive:derive",
        smalls="grader.labs.offload.small:SMALL",
        mend=mend,
    )


def mend(case: Case, rule: Rule, wrong: frozenset[str]) -> Mapping[int, Operation]:
    """A new runner gets the reference's manager, where the rule does not look at managers and the reference is here."""
    if rule.facets & _OF_MANAGERS or "runner" in wrong:
        return {}
    runners = [number for number, operation in enumerate(case.trace.operations) if operation.name == "runner"]
    source = stand_in(_MANAGER) if runners else ""
    return {number: Operation(name="stand_in", arguments=(source,)) for number in runners if source}


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each thing that cannot be."""
    if state["kind"] not in ("manager", "runner"):
        return
    blocks, size = state["settings"][-2 if state["kind"] == "manager" else 1], state["settings"][_SIZE[state["kind"]]]
    tables, free = state["tables"], state["free"]
    for block in range(blocks):
        places = [f"{seq}'s table" for seq, table in tables.items() for other in table if other == block]
        places += ["the free blocks"] * free.count(block)
        if len(places) != 1:
            yield f"block {block} is {'nowhere' if not places else 'in ' + ' and in '.join(places)}"
    for seq, length in state["lengths"]:
        table, entry = tables.get(str(seq)), state["tracking"].get(str(seq))
        if table is not None and len(table) != -(-length // size):
            yield f"{seq} has {length} tokens in {len(table)} blocks of {size}"
        if entry is not None:
            yield from _of_tracking(str(seq), length, entry, (table or [])[: -(-entry[1] // size)], size=size)


_SIZE = {"manager": 1, "runner": 2}
"""Where the block size is in the settings."""


def _of_tracking(seq: str, length: int, entry: list[Any], first: list[Any], *, size: int) -> Iterator[str]:
    prefilled, offloaded, start = entry
    if offloaded > length:
        yield f"{seq} has {offloaded} offloaded tokens of {length}"
    if start != offloaded % size:
        yield f"{seq} has P {offloaded}, but start {start} with blocks of {size}"
    if prefilled != first:
        yield f"{seq} has P {offloaded}, but its prefilled blocks are {prefilled}"


_SIGNS = {
    "C": "copy",
    "K": "kernel",
    "A": "alloc",
    "F": "free",
    "R": "record",
    "W": "wait",
    "S": "the host waits",
    "H": "the host reads",
}
_CALLS = ("offload", "load", "use", "store", "flush", "prefill", "decode", "finish")
_KIB = 1024
_Record = Mapping[str, Any]


def charts(trace: Trace, records: Sequence[_Record], operation: int) -> Iterator[Chart]:
    """Yield both charts of a program's run; of the reference's there is nothing to show."""
    notes = [record.get("notes", {}) for record in records]
    if 0 < operation <= len(notes) and notes[operation - 1].get("lanes"):
        yield _lanes(notes[operation - 1]["lanes"], operation)
    shown = [
        (number, note["memory"])
        for number, (call, note) in enumerate(zip(trace.operations, notes, strict=False), 1)
        if call.name in _CALLS and "memory" in note
    ]
    if any(used > limit for _, (used, limit) in shown):
        yield Chart(
            title="Device memory beyond the storage, the most in each call, in KiB",
            legend={},
            columns=tuple(str(number) for number, _ in shown),
            operations=tuple(number for number, _ in shown),
            levels=(
                Level(
                    label="used / allowed",
                    values=tuple(-(-used // _KIB) for _, (used, _) in shown),
                    most=max(1, min(limit for _, (_, limit) in shown) // _KIB),
                ),
            ),
        )


def _lanes(lanes: Mapping[str, Any], operation: int) -> Chart:
    """Draw calls as columns, each in the row of its stream; columns are called by the submission's lines."""
    calls = lanes["calls"]
    host = len(lanes["streams"])
    rows = [stream if stream >= 0 else host for stream, _, _ in calls]
    places = [ChartCell(column, row) for column, row in enumerate(rows)]
    marks = [places[number] for number in lanes["pair"]]
    cells = [sign for _, sign, _ in calls]
    columns = [str(line) if line else "–" for _, _, line in calls]
    if len(marks) == 1:  # the other is the host, which reads when the call returns
        rows, cells, columns = [*rows, host], [*cells, "H"], [*columns, "end"]
        marks.append(ChartCell(len(rows) - 1, host))
    used = sorted({*rows})
    return Chart(
        title=f"Streams in operation {operation}, by your lines: the marked calls have no order, or too much of it",
        legend=_SIGNS,
        columns=tuple(columns),
        tracks=tuple(
            Track(
                label="host" if row == host else lanes["streams"][row] or f"stream {row}",
                cells=tuple(sign if own == row else "" for own, sign in zip(rows, cells, strict=True)),
            )
            for row in used
        ),
        marks=tuple(ChartCell(mark.column, used.index(mark.track)) for mark in marks),
        arrows=tuple(
            Arrow(ChartCell(start, used.index(rows[start])), ChartCell(end, used.index(rows[end])))
            for start, end in lanes["arrows"]
        ),
    )
