"""From what a case of a program reported to states of plain values: the lab's part between runtime and judge.

Nothing here believes what was reported. A log that no device writes ends the case, with the reason.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.labs.offload.device import VALUE_BYTES, LoggedCall, ModelSizes
from grader.labs.offload.engine_case import EngineCase
from grader.labs.offload.races import Race
from grader.labs.offload.replay import CPU, DECODE, RING, CannotJudge, Log, Replay, numbers_of
from grader.labs.offload.runner_case import IDLE, Before, Finding, RunnerCase, loads_of
from grader.labs.offload.sentences import Wrong, facet_of_race, garbage, race
from grader.runtime.python.play import Derived, DerivedStep
from reference.operation import Operation

_WORKSPACE, _RING = ("race_free", "race_workspace"), ("race_reload", "race_ring")
_CACHE, _MEMORY = ("race_cache", "race_decode", "race_logits"), ("memory_layers", "memory_left", "memory")
_PARTS = (
    *("lists", "cpu", "ring", "decode", "flush", "values", "logits"),
    *(*_WORKSPACE, *_RING, *_CACHE, "overlap", *_MEMORY),
)
_MOST_FINDINGS = 5
_MOST_LAYERS = 2
_MOST_RACES = 40
"""Of an operation; more are not put into words."""
_DRIVER = {"offload": 6, "store": 6}
"""The entries that the driver itself writes for a call: it allocates, fills and frees two buffers."""
_JUDGED = {
    "offloaded": (*_WORKSPACE, *_MEMORY),
    "stored": _CACHE,
    "loaded": (*_RING, "overlap"),
    "logits": (*_WORKSPACE, *_CACHE, *_MEMORY),
    "offload": (*_WORKSPACE, *_MEMORY),
    "load": (*_RING, *_CACHE),
    "store": (*_WORKSPACE, *_CACHE),
    "flush": _CACHE,
}
"""What a call did not do, or an engine's call that did nothing, and the parts that are not judged then: a program that
does nothing has no race."""
_WRITTEN = {"offloaded": CPU, "stored": DECODE}
"""A runner's call that wrote into these buffers did so much of its work, if at wrong places."""


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
    """Look for no garbage in cycles: nearly all of tens of thousands of objects are needed until the case ends."""
    were_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if were_on:
            gc.enable()


@dataclass(slots=True)
class _DerivedCase:
    """What the grader knows of a case so far."""

    kind: str = ""
    settings: list[int] = field(default_factory=list)
    lengths: dict[Any, int] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    before: Mapping[str, Any] = field(default_factory=dict)
    """The program's own free list, tables and tracking before the operation."""
    replay: Replay | None = None
    engine: EngineCase | None = None
    runner: RunnerCase | None = None
    first_race: list[str] | None = None
    """The sentences that begin with the first race; None before it, [] once that sentence names the wrong logits."""
    taken: int = 0
    """The number of operations."""
    memory: tuple[int, int] = (0, 0)
    """The most bytes beyond the storage in the last call, and how many are allowed."""

    def take(self, operation: Operation, record: Mapping[str, Any]) -> DerivedStep:
        """Return the state after an operation. Raises `CannotJudge`."""
        self.taken += 1
        raw, reply = record.get("state"), record.get("reply")
        if not isinstance(raw, dict) or not isinstance(reply, dict):
            raise CannotJudge("its report is not a state")
        accepted = "raised" not in reply
        if operation.name in ("engine", "runner") or (operation.name == "manager" and accepted):
            self._begin(operation)  # also a constructor that raises has a new device
        prepared = self._prepare(operation) if accepted else None
        log = Log()
        if self.replay is not None:
            log = self.replay.take(raw.get("log"))
            if operation.name in ("engine", "runner"):
                self.replay.storage = numbers_of(raw.get("handles"), self.replay.device)
        if accepted:
            self._count(operation)
        findings = self._findings(operation, log, raw, prepared, accepted=accepted)
        loads, rows = self._loads(operation, log)
        state: dict[str, Any] = {
            **{part: _sentences(findings, part) for part in _PARTS},
            "kind": self.kind,
            "settings": list(self.settings),
            "free": raw.get("free"),
            "tables": raw.get("tables"),
            "tracking": raw.get("tracking"),
            "lengths": [[seq, length] for seq, length in self.lengths.items()],
            "running": list(self.running),
            "storage": self._storage(raw, log) if operation.name in ("engine", "runner") else {},
            "loads": loads,
            "load_rows": rows,
            "calls": 0 if accepted else max(0, log.entries - _DRIVER.get(operation.name, 0)),
        }
        if self.first_race is None:
            race_part = next((part for part, wrong in findings if part.startswith("race_") and wrong.pair), "")
            self.first_race = state.get(race_part)
        if accepted and operation.name in ("prefill", "decode"):
            self._show_wrong(operation)
        self.before = raw
        lines = {part: _lines(findings, part) for part in _PARTS if any(of == part for of, _ in findings)}
        return DerivedStep({"reply": reply, "state": state}, lines, self._notes(findings))

    def _notes(self, findings: Sequence[Finding]) -> dict[str, Any]:
        """What pictures show besides: memory, and the streams around the first two calls that are out of order."""
        if self.replay is None:
            return {}
        pair = next((wrong.pair for _, wrong in findings if wrong.pair is not None), None)
        return {"memory": list(self.memory), "lanes": lanes(self.replay, pair) if pair is not None else {}}

    def _begin(self, operation: Operation) -> None:
        """Begin with a new manager, engine or runner."""
        self.kind, self.settings = operation.name, [*operation.numbers]
        self.lengths, self.running, self.first_race = {}, [], None
        if self.kind != "manager":
            self.replay = Replay(ModelSizes(**dict(zip(_SETTINGS, operation.numbers, strict=True))))
            self.engine = EngineCase(self.replay) if self.kind == "engine" else None
            self.runner = RunnerCase(self.replay) if self.kind == "runner" else None

    def _prepare(self, operation: Operation) -> Before | None:
        """Look at what a decode begins with."""
        if operation.name != "decode" or self.runner is None or self.running != [operation.arguments[0]]:
            return None
        seq = operation.arguments[0]
        return self.runner.begin_decode(self.lengths[seq], self._table(self.before, seq), self._offloaded(seq))

    def _count(self, operation: Operation) -> None:
        """Count the tokens of sequences: what an accepted call makes of them."""
        seq, *more = operation.arguments or (None,)
        match operation.name:
            case "allocate":
                self.lengths[seq] = _int(more[0])
            case "prefill":
                tokens = more[0]
                assert isinstance(tokens, tuple)
                self.lengths[seq], self.running = len(tokens), [seq]
            case "may_append" | "decode" if seq in self.lengths:
                self.lengths[seq] += 1
            case "deallocate" | "finish":
                self.lengths.pop(seq, None)
                self.running = [] if operation.name == "finish" else self.running

    def _findings(
        self, operation: Operation, log: Log, raw: Mapping[str, Any], prepared: Before | None, *, accepted: bool
    ) -> list[Finding]:
        """What is wrong in memory, its order and its size after an operation."""
        if self.replay is None:
            getter = _GETTERS.get(operation.name)
            text = f"the test wrote into the list that {getter} returned, and what the manager holds changed with it"
            return [("lists", Wrong(text))] if raw.get("shared") else []
        findings = self._content(operation, log, raw, prepared) if accepted else []
        if self.engine is not None and not accepted and operation.name in _DRIVER:
            self.engine.fills += 1  # the driver fills before it calls
        findings += self._races(log.races[:_MOST_RACES])
        if accepted and operation.name in ("prefill", "decode") and self.runner is not None:
            span = self.runner.host_span()
            findings += self._races([] if span is None else [*self.replay.races.host_reads(span)])
        findings += self._sizes(operation, log)
        words = {wrong.sentence for part, wrong in findings if part == IDLE}
        findings += [(part, _NOT_JUDGED) for word in sorted(words) for part in _JUDGED.get(word, ())]
        return findings

    def _races(self, races: Sequence[Race]) -> list[Finding]:
        replay = self.replay
        assert replay is not None
        return [(facet_of_race(data_race, replay), race(data_race, replay)) for data_race in races]

    def _show_wrong(self, operation: Operation) -> None:
        """Say with the first race in which call the logits are wrong first, and under which schedules."""
        span = self.runner.host_span() if self.runner is not None else None
        if not self.first_race or span is None:
            return
        assert self.replay is not None
        schedules = self.replay.wrong_under(span)
        if schedules:
            named = " or ".join(filter(None, [", ".join(schedules[:-1]), schedules[-1]]))
            where = f"{operation.name} at operation {self.taken}"
            self.first_race[0] += f"; the logits of {where} are wrong on a device that runs {named}"
            self.first_race = []

    def _content(
        self, operation: Operation, log: Log, raw: Mapping[str, Any], prepared: Before | None
    ) -> list[Finding]:
        if self.engine is not None:
            self.engine.follow(operation.name, operation.arguments)
            findings, idle = self.engine.compare(log)
            return [*findings, (IDLE, Wrong(operation.name))] if idle else findings
        assert self.runner is not None
        findings = []
        if operation.name == "prefill":
            seq, tokens = operation.arguments
            assert isinstance(tokens, tuple)
            if tokens:
                findings = self.runner.prefill(log, [_int(token) for token in tokens], self._new_table(raw, seq))
        elif prepared is not None:
            seq, token = operation.arguments
            findings = self.runner.decode(log, _int(token), prepared, self._table(raw, seq))
            findings += self.runner.overlap(log)
            loads, _ = loads_of(self.replay, log, {}) if self.replay is not None else ([], {})
            if len({layer for layer, _ in loads}) < self.settings[0] and prepared.offloaded:
                findings += [("ring", Wrong("not every layer was loaded")), (IDLE, Wrong("loaded"))]
        written = {name for name, number in self.runner.replay.storage.items() if log.writes(number)}
        done = {word for word, names in _WRITTEN.items() if written.issuperset(names)}
        findings = [(part, wrong) for part, wrong in findings if part != IDLE or wrong.sentence not in done]
        if log.garbage and any(part in ("values", "logits") for part, _ in findings):
            findings.insert(0, ("values", garbage(*log.garbage[0], self.runner.replay)))
        return findings

    def _sizes(self, operation: Operation, log: Log) -> list[Finding]:
        """What is wrong with the memory that a call had, or left behind (Constraint 4)."""
        replay = self.replay
        assert replay is not None
        if operation.name in ("engine", "runner"):
            return []  # that is told of the storage
        findings: list[Finding] = []
        device = replay.device
        for number in log.created:
            buffer = device.buffers[number]
            if not buffer.is_freed:
                kind = "pinned memory" if buffer.stream is None else "device memory"
                text = f"line {buffer.line} allocated {buffer.values * VALUE_BYTES} bytes of {kind} in this call"
                text += " that are not freed" if buffer.stream is not None else ", which is never freed"
                findings.append(("memory_left", Wrong(text, (buffer.line,))))
        if operation.name == "prefill" and log.most_layers > _MOST_LAYERS:
            text = f"the keys and values of {log.most_layers} layers are in device memory at a time"
            findings.append(("memory_layers", Wrong(text, (log.layers_line,))))
        config = replay.config
        tokens = config.max_seq_len if self.kind == "engine" else max(self.lengths.values(), default=1)
        per_row = 8 * config.hidden + 2 * config.q_width + 2 * config.kv_width
        limit = VALUE_BYTES * (2 * tokens * per_row + 2 * config.vocab)
        driver = log.created[:2] if operation.name in _DRIVER else []
        storage = [number for number in replay.storage.values() if device.buffers[number].stream is not None]
        used = log.most_bytes - replay.bytes_of([*storage, *driver])
        self.memory = used, limit
        if used > limit and log.created:  # what an earlier call left behind is told of that call
            text = f"{used} bytes of device memory are allocated beyond the storage, and {limit} are allowed"
            findings.append(("memory", Wrong(text, (log.most_line,))))
        return findings

    def _storage(self, raw: Mapping[str, Any], log: Log) -> dict[str, Any]:
        """The storage after the constructor: rows, width and place of each buffer, and what else was allocated."""
        replay, read = self.replay, raw.get("handles")
        assert replay is not None
        owner = read.get("compute_stream") if isinstance(read, dict) else None
        shown: dict[str, Any] = {}
        names = _STORAGE if self.kind == "engine" else (*_STORAGE, "logits")
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
        others = [number for number in log.created if number not in own and not replay.device.buffers[number].is_freed]
        buffers = [replay.device.buffers[number] for number in others]
        return {**shown, "others": [[other.rows, other.width] for other in buffers]}

    def _loads(self, operation: Operation, log: Log) -> tuple[list[Any], dict[str, Any]]:
        """What an operation loaded; see `loads_of`."""
        if self.replay is None:
            return [], {}
        config = self.replay.config
        wanted: dict[int, list[int]] = {}
        table: list[int] = []
        tokens, layers = 0, range(0)
        if operation.name == "load":
            _, layer, ids, tokens = operation.arguments  # type: ignore[assignment]
            table, layers = [*ids], range(_int(layer), _int(layer) + 1)  # type: ignore[misc]
        elif operation.name == "decode":
            seq = operation.arguments[0]
            table, tokens, layers = self._table(self.before, seq), self._offloaded(seq), range(config.num_layers)
        for layer in layers:
            wanted[layer] = [
                config.cpu_row(layer, table[token // config.block_size], token % config.block_size)
                for token in range(min(tokens, len(table) * config.block_size))
            ]
        return loads_of(self.replay, log, wanted)

    def _table(self, raw: Mapping[str, Any], seq: Any) -> list[int]:
        """The program's table of a sequence, as far as it is a list of numbers."""
        tables = raw.get("tables")
        table = tables.get(str(seq)) if isinstance(tables, dict) else None
        return [block for block in table if type(block) is int] if isinstance(table, list) else []

    def _new_table(self, raw: Mapping[str, Any], seq: Any) -> list[int]:
        """The table of a new sequence; where the program's cannot be one, the head of its queue before the call."""
        size = self.settings[2]
        needed = -(-self.lengths[seq] // size)
        table, free = self._table(raw, seq), self.before.get("free")
        if len(table) == needed and len(set(table)) == needed:
            return table
        return [block for block in free if type(block) is int][:needed] if isinstance(free, list) else []

    def _offloaded(self, seq: Any) -> int:
        """The program's P of a sequence before the call; the grader's where it has none."""
        tracking = self.before.get("tracking")
        entry = tracking.get(str(seq)) if isinstance(tracking, dict) else None
        length = self.lengths.get(seq, 0)
        if isinstance(entry, list) and len(entry) == len(_TRACKED) and type(entry[1]) is int:
            return max(0, min(entry[1], length))
        return length // self.settings[2] * self.settings[2]


_SETTINGS = ("num_layers", "num_cpu_blocks", "block_size", "num_kv_buffers", "max_seq_len")
_GETTERS = {
    "allocate": "allocate_cpu_only",
    "blocks": "get_all_cpu_blocks",
    "prefilled": "get_prefilled_cpu_blocks",
}
_TRACKED = ("prefilled", "P", "start")
_STORAGE = (*CPU, *RING, *DECODE)
_NOT_JUDGED = Wrong("not judged, because the call did not do its work")


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _sentences(findings: Sequence[Finding], part: str) -> list[str]:
    """What is wrong with a part, each once."""
    own = dict.fromkeys(wrong.sentence for of, wrong in findings if of == part)
    shown = [*own][:_MOST_FINDINGS]
    return [*shown, f"and {len(own) - _MOST_FINDINGS} more"] if len(own) > _MOST_FINDINGS else shown


def _lines(findings: Sequence[Finding], part: str) -> tuple[int, ...]:
    """The lines of the first finding that has some."""
    return next((wrong.lines for of, wrong in findings if of == part and any(wrong.lines)), ())


_MOST = 7
"""The most calls that are shown from the first of the two on, and up to the second."""
_HOST = -1
_SIGNS = {"alloc": "A", "free": "F", "copy": "C", "record": "R", "wait": "W", "sync": "S"}
_NOT_SHOWN = ("stream", "event", "alloc_pinned", "record_stream")


def lanes(replay: Replay, pair: tuple[LoggedCall, LoggedCall | None]) -> dict[str, Any]:
    """Return the names of the streams, the calls in order (stream, sign, line), the arrows and the pair by position."""
    first, second = (next((n for n, call in enumerate(replay.calls) if call is wanted), None) for wanted in pair)
    if first is None:
        return {}
    last = len(replay.calls) - 1 if second is None else second
    begin, end = min(first, last), max(first, last)
    window = [*range(max(0, begin - 1), min(end + 2, len(replay.calls)))]
    window = [number for number in window if replay.calls[number].name not in _NOT_SHOWN]
    if len(window) > 2 * _MOST:
        window = [*window[:_MOST], *window[-_MOST:]]
    places = {number: place for place, number in enumerate(window)}
    calls = [replay.calls[number] for number in window]
    return {
        "streams": list(replay.device.streams),
        "calls": [
            [_HOST if call.name == "sync" else call.stream, _SIGNS.get(call.name, "K"), call.line] for call in calls
        ],
        "arrows": [arrow for place in range(len(calls)) if (arrow := _arrow(calls, place)) is not None],
        "pair": [places[number] for number in (first, second) if number in places],
    }


def _arrow(calls: list[LoggedCall], place: int) -> list[int] | None:
    """From the record that a wait or a host's wait stands for to it, if both are shown."""
    call = calls[place]
    if call.name not in ("wait", "sync") or call.event < 0:
        return None
    records = [at for at in range(place) if calls[at].name == "record" and calls[at].event == call.event]
    return [records[-1], place] if records else None
