"""Derive the states of a case from what the program reported. The judge compares these states.

The report is not trusted: a log that the device cannot have written ends the case, with the reason.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.labs.offload.contents import EngineCase, RunnerCase, loads_of
from grader.labs.offload.device import STORAGE, VALUE_BYTES, ModelSizes, RowSpan
from grader.labs.offload.replay import CannotJudge, Log, Replay, numbers_of
from grader.labs.offload.sentences import Findings, Wrong, facet_of_race, lanes, race
from grader.labs.python_lab import as_list, as_mapping
from grader.runtime.python.play import Derived, DerivedStep
from reference.operation import Operation

_GETTERS = {"allocate": "allocate_cpu_only", "blocks": "get_all_cpu_blocks", "prefilled": "get_prefilled_cpu_blocks"}
_MOST_RACES = 40
"""The most races of an operation that are reported."""
_DRIVER = {"offload": 6, "store": 6}
"""The number of log entries of the driver itself for a call: it allocates, fills and frees two buffers."""

Reported = Mapping[str, Any]
"""The state that a program reported after an operation."""


def derive(operations: Sequence[Operation], records: Sequence[Mapping[str, Any]]) -> Derived:
    """Return the states of a case."""
    case = _DerivedCase()
    steps: list[DerivedStep] = []
    with np.errstate(all="ignore"), _no_collections():
        for operation, record in zip(operations, records, strict=False):
            try:
                steps.append(case.take(operation, record))
            except CannotJudge as stopped:
                return Derived(steps, str(stopped), (stopped.line,) if stopped.line else ())
    return Derived(steps)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Turn the garbage collector off: nearly all of tens of thousands of objects are needed until the case ends."""
    were_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if were_on:
            gc.enable()


@dataclass(slots=True)
class _Sequences:
    """The sequences of a manager: the lengths that the caller counts, and the blocks that the program reports."""

    size: int = 0
    """The number of tokens in a block."""
    lengths: dict[Any, int] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    before: Reported = field(default_factory=dict)
    """The program's own free list, tables and tracking before the operation."""

    def count(self, call: _Call) -> None:
        """Update the lengths after an accepted call."""
        seq, *more = call.arguments or (None,)
        match call.name:
            case "allocate":
                self.lengths[seq] = more[0]
            case "prefill":
                self.lengths[seq], self.running = len(more[0]), [seq]
            case "may_append" | "decode" if seq in self.lengths:
                self.lengths[seq] += 1
            case "deallocate" | "finish":
                self.lengths.pop(seq, None)
                self.running = [] if call.name == "finish" else self.running

    def table(self, state: Reported, seq: Any) -> list[int]:
        """Return the program's table of a sequence, without entries that are no numbers."""
        table = as_list(as_mapping(state.get("tables")).get(str(seq)))
        return [block for block in table if type(block) is int]

    def new_table(self, state: Reported, seq: Any) -> list[int]:
        """Return the program's table of a new sequence; if it is invalid, the first blocks of the earlier free list."""
        needed = -(-self.lengths[seq] // self.size)
        table, free = self.table(state, seq), as_list(self.before.get("free"))
        if len(table) == needed and len(set(table)) == needed:
            return table
        return [block for block in free if type(block) is int][:needed]

    def offloaded(self, seq: Any) -> int:
        """Return P (offloaded tokens) as reported before the call. If none was reported, assume all full blocks."""
        entry = as_mapping(self.before.get("tracking")).get(str(seq))
        length = self.lengths.get(seq, 0)
        if isinstance(entry, list) and len(entry) == 3 and type(entry[1]) is int:  # prefilled blocks, P, start
            return max(0, min(entry[1], length))
        return length // self.size * self.size


@dataclass(slots=True)
class _Call:
    """An operation, and what the program did in it."""

    name: str
    arguments: tuple[Any, ...]
    reported: Reported
    accepted: bool
    log: Log = field(default_factory=Log)


@dataclass(slots=True)
class _DerivedCase:
    """What the grader knows of a case so far."""

    kind: str = ""
    settings: list[int] = field(default_factory=list)
    sequences: _Sequences = field(default_factory=_Sequences)
    replay: Replay | None = None
    """The grader's device, if the case has an engine or a runner."""
    engine: EngineCase | None = None
    runner: RunnerCase | None = None
    first_race: list[str] | None = None
    """The sentences about the first race, or None before it; [] once `_note_race` has named the first wrong logits."""
    taken: int = 0
    """The number of operations so far."""

    def take(self, operation: Operation, record: Mapping[str, Any]) -> DerivedStep:
        """Return the state after an operation. Raises `CannotJudge` if the report is impossible."""
        self.taken += 1
        raw, reply = record.get("state"), record.get("reply")
        if not isinstance(raw, dict) or not isinstance(reply, dict):
            raise CannotJudge("its report is not a state")
        call = _Call(operation.name, operation.arguments, raw, accepted="raised" not in reply)
        if call.name in ("engine", "runner") or (call.name == "manager" and call.accepted):
            self._begin(operation)  # a constructor that raises has a new device too
        if call.accepted:
            self._begin_decode(call)
        if self.replay is not None:
            call.log = self.replay.take(raw.get("log"))
        if call.accepted:
            self.sequences.count(call)
        storage = self._storage(call)
        findings = Findings()
        notes = self._check(findings, call)
        sentences, (loads, rows) = findings.sentences(), self._loads(call)
        self._note_race(findings, sentences, call)
        self.sequences.before = raw
        state = {
            **sentences,
            "kind": self.kind,
            "settings": list(self.settings),
            "free": raw.get("free"),
            "tables": raw.get("tables"),
            "tracking": raw.get("tracking"),
            "lengths": [[seq, length] for seq, length in self.sequences.lengths.items()],
            "running": list(self.sequences.running),
            "storage": storage,
            "loads": loads,
            "load_rows": rows,
            "calls": 0 if call.accepted else max(0, call.log.entries - _DRIVER.get(call.name, 0)),
        }
        return DerivedStep({"reply": reply, "state": state}, findings.lines(), notes)

    def _begin(self, operation: Operation) -> None:
        """Begin with a new manager, engine or runner."""
        self.kind, self.settings = operation.name, [*operation.numbers]
        size = self.settings[1 if self.kind == "manager" else 2]
        self.sequences, self.first_race = _Sequences(size, before=self.sequences.before), None
        if self.kind != "manager":
            self.replay = Replay(ModelSizes(*operation.numbers))
            self.engine = EngineCase(self.replay) if self.kind == "engine" else None
            self.runner = RunnerCase(self.replay) if self.kind == "runner" else None

    def _begin_decode(self, call: _Call) -> None:
        """Record the state in which a decode begins."""
        seq, sequences = call.arguments[:1], self.sequences
        if call.name == "decode" and self.runner is not None and sequences.running == [*seq]:
            table = sequences.table(sequences.before, *seq)
            self.runner.begin_decode(sequences.lengths[seq[0]], table, sequences.offloaded(*seq))

    def _storage(self, call: _Call) -> dict[str, Any]:
        """Return the storage after a constructor, {} after other calls."""
        if self.replay is None or call.name not in ("engine", "runner"):
            return {}
        handles = call.reported.get("handles")
        self.replay.storage = numbers_of(handles, self.replay.device)
        return storage_of(self.replay, call.log, handles, logits=call.name == "runner")

    def _check(self, findings: Findings, call: _Call) -> dict[str, Any]:
        """Find what is wrong in the contents, order and size of memory. Return the notes that charts are drawn from."""
        replay = self.replay
        if replay is None:
            if call.reported.get("shared"):
                what = f"the test wrote into the list that {_GETTERS.get(call.name)} returned"
                findings.add("lists", f"{what}, and what the manager holds changed with it")
            return {}
        if call.accepted:
            self._check_content(findings, call)
        elif self.engine is not None and call.name in _DRIVER:
            self.engine.fills += 1  # the driver filled rows before the call raised
        span = self._logits(call)
        for data_race in (*call.log.races[:_MOST_RACES], *(() if span is None else replay.races.host_reads(span))):
            findings.add(facet_of_race(data_race, replay), race(data_race, replay))
        used = self._check_memory(replay, findings, call)
        findings.close()
        return {"memory": used, "lanes": next((lanes(replay, pair) for _, pair in findings.pairs), {})}

    def _logits(self, call: _Call) -> RowSpan | None:
        """Return the rows that the host reads after this call, None if it reads none."""
        computes = call.accepted and call.name in ("prefill", "decode")
        return self.runner.host_span() if self.runner is not None and computes else None

    def _check_content(self, findings: Findings, call: _Call) -> None:
        """Find wrong contents of the memory."""
        if self.engine is not None:
            self.engine.follow(call.name, call.arguments)
            if self.engine.compare(findings, call.log):
                findings.undone.add(call.name)
        elif self.runner is not None and call.name in ("prefill", "decode"):
            seq, tokens = call.arguments
            if call.name == "decode":
                self.runner.decode(findings, call.log, tokens, self.sequences.table(call.reported, seq))
            elif tokens:
                self.runner.prefill(findings, call.log, tokens, self.sequences.new_table(call.reported, seq))

    def _check_memory(self, replay: Replay, findings: Findings, call: _Call) -> list[int]:
        """Find calls that use too much memory; see `check_memory`."""
        if call.name in ("engine", "runner"):
            return [0, 0]  # `storage` shows what a constructor allocates
        longest = max(self.sequences.lengths.values(), default=1)
        tokens = replay.config.max_seq_len if self.kind == "engine" else longest
        of_driver = call.log.created[:2] if call.name in _DRIVER else []
        is_prefill = call.name == "prefill"
        return check_memory(findings, replay, call.log, tokens, is_prefill=is_prefill, of_driver=of_driver)

    def _note_race(self, findings: Findings, sentences: Mapping[str, list[str]], call: _Call) -> None:
        """Complete the sentence of the first race: which call first has wrong logits, and under which schedules."""
        if self.first_race is None:
            self.first_race = next((sentences[part] for part, _ in findings.pairs if part.startswith("race_")), None)
        span = self._logits(call)
        if not self.first_race or span is None or self.replay is None:
            return
        schedules = self.replay.wrong_under(span)
        if schedules:
            named = " or ".join(filter(None, [", ".join(schedules[:-1]), schedules[-1]]))
            where = f"{call.name} at operation {self.taken}"
            self.first_race[0] += f"; the logits of {where} are wrong on a device that runs {named}"
            self.first_race = []

    def _loads(self, call: _Call) -> tuple[list[Any], dict[str, Any]]:
        """Return what an operation loaded; see `loads_of`."""
        if self.replay is None:
            return [], {}
        config, arguments = self.replay.config, call.arguments
        table: Sequence[int] = ()
        tokens, layers = 0, range(0)
        if call.name == "load":
            _, layer, table, tokens = arguments
            layers = range(layer, layer + 1)
        elif call.name == "decode":
            table = self.sequences.table(self.sequences.before, arguments[0])
            tokens, layers = self.sequences.offloaded(arguments[0]), range(config.num_layers)
        places = [divmod(token, config.block_size) for token in range(min(tokens, len(table) * config.block_size))]
        wanted = {layer: [config.cpu_row(layer, table[block], row) for block, row in places] for layer in layers}
        return loads_of(self.replay, call.log, wanted)


_MOST_LAYERS = 2


def storage_of(replay: Replay, log: Log, handles: object, *, logits: bool) -> dict[str, Any]:
    """Return the storage after the constructor: rows, width and place of each buffer, and what else was allocated.

    `handles` has the numbers of the buffers in the program's attributes.
    """
    owner = as_mapping(handles).get("compute_stream")
    shown: dict[str, Any] = {}
    names = (*STORAGE, "logits") if logits else STORAGE
    for name in names:
        number = replay.storage.get(name)
        if number is None:
            shown[name] = "no buffer of the device"
            continue
        buffer = replay.device.buffers[number]
        place = "pinned" if buffer.stream is None else "compute_stream"
        if buffer.stream is not None and (type(owner) is not int or buffer.stream != owner):
            place = "another stream"
        shown[name] = [buffer.rows, buffer.width, place]
    own = [replay.storage[name] for name in names if name in replay.storage]
    others = [replay.device.buffers[number] for number in log.created if number not in own]
    return {**shown, "others": [[other.rows, other.width] for other in others if not other.is_freed]}


def check_memory(
    findings: Findings, replay: Replay, log: Log, tokens: int, *, is_prefill: bool, of_driver: list[int]
) -> list[int]:
    """Find too much memory in a call for a sequence of `tokens` tokens (Constraint 4).

    Return the most bytes that the call had beyond the storage and the driver's buffers, and how many are allowed.
    """
    buffers, config = replay.device.buffers, replay.config
    for buffer in (buffers[number] for number in log.created if not buffers[number].is_freed):
        kind = "pinned memory" if buffer.stream is None else "device memory"
        text = f"line {buffer.line} allocated {buffer.values * VALUE_BYTES} bytes of {kind} in this call"
        text += " that are not freed" if buffer.stream is not None else ", which is never freed"
        findings.add("memory_left", Wrong(text, (buffer.line,)))
    if is_prefill and log.most_layers > _MOST_LAYERS:
        text = f"the keys and values of {log.most_layers} layers are in device memory at a time"
        findings.add("memory_layers", Wrong(text, (log.layers_line,)))
    per_row = 8 * config.hidden + 2 * config.q_width + 2 * config.kv_width
    limit = VALUE_BYTES * (2 * tokens * per_row + 2 * config.vocab)
    storage = [number for number in replay.storage.values() if buffers[number].stream is not None]
    used = log.most_bytes - VALUE_BYTES * sum(buffers[number].values for number in (*storage, *of_driver))
    if used > limit and log.created:  # what an earlier call left behind was reported at that call
        text = f"{used} bytes of device memory are allocated beyond the storage, and {limit} are allowed"
        findings.add("memory", Wrong(text, (log.most_line,)))
    return [used, limit]
