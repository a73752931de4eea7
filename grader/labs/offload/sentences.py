"""What is wrong in each part of the state: sentences, lines of the submission, and pictures of two calls' streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from grader.labs.offload.device import CPU, DECODE, PARTS, RING, LoggedCall, Race, RowSpan, Serial, edge_of
from grader.labs.offload.replay import Replay

_WORKSPACE, _RING = ("race_free", "race_workspace"), ("race_reload", "race_ring")
_CACHE, _MEMORY = ("race_cache", "race_decode", "race_logits"), ("memory_layers", "memory_left", "memory")
_NOT_JUDGED = {
    "offloaded": (*_WORKSPACE, *_MEMORY),
    "stored": _CACHE,
    "loaded": (*_RING, "overlap"),
    "logits": (*_WORKSPACE, *_CACHE, *_MEMORY),
    "offload": (*_WORKSPACE, *_MEMORY),
    "load": (*_RING, *_CACHE),
    "store": (*_WORKSPACE, *_CACHE),
    "flush": _CACHE,
}
"""Keys: work of a runner's call, or a call of an engine. Values: the parts of the state not judged without this work.

Without this a program that does nothing would pass, because it has no race."""
_MOST_SENTENCES = 5


@dataclass(frozen=True, slots=True)
class Wrong:
    """A sentence about what is wrong, and the lines of the submission that the sentence names."""

    sentence: str
    lines: tuple[int, ...] = ()
    pair: tuple[LoggedCall, LoggedCall | None] | None = None
    """The two calls that nothing orders, or that must not be ordered. If the second is None, it is the host."""


@dataclass(slots=True)
class Findings:
    """What is wrong after an operation, in the order in which it was seen."""

    wrong: list[tuple[str, Wrong]] = field(default_factory=list)
    """Pairs of a part of the state and what is wrong there."""
    undone: set[str] = field(default_factory=set)
    """The work that the call did not do at all: keys of `_NOT_JUDGED`."""

    def add(self, part: str, wrong: Wrong | str) -> None:
        """Add what is wrong in a part of the state."""
        self.wrong.append((part, Wrong(wrong) if isinstance(wrong, str) else wrong))

    def has(self, *parts: str) -> bool:
        """Return whether something is wrong in one of these parts."""
        return any(part in parts for part, _ in self.wrong)

    def drop(self, *parts: str) -> None:
        """Remove what is wrong in these parts."""
        self.wrong = [(part, wrong) for part, wrong in self.wrong if part not in parts]

    def close(self) -> None:
        """Mark the parts that cannot be judged because the call did not do its work."""
        for part in (part for word in sorted(self.undone) for part in _NOT_JUDGED.get(word, ())):
            self.add(part, "not judged, because the call did not do its work")

    def sentences(self) -> dict[str, list[str]]:
        """Return the sentences of each part without repetitions; only the first ones if there are many."""
        shown: dict[str, list[str]] = {part: [] for part in PARTS}
        for part, wrong in self.wrong:
            if wrong.sentence not in shown[part]:
                shown[part].append(wrong.sentence)
        for own in shown.values():
            own[_MOST_SENTENCES:] = [f"and {len(own) - _MOST_SENTENCES} more"] * (len(own) > _MOST_SENTENCES)
        return shown

    def lines(self) -> dict[str, tuple[int, ...]]:
        """Return for each part the lines of the first finding that has lines."""
        return {part: wrong.lines for part, wrong in reversed(self.wrong) if any(wrong.lines)}

    @property
    def pairs(self) -> list[tuple[str, tuple[LoggedCall, LoggedCall | None]]]:
        """The pairs of calls whose order is wrong, each with its part of the state."""
        return [(part, wrong.pair) for part, wrong in self.wrong if wrong.pair is not None]


def facet_of_race(race: Race, replay: Replay) -> str:
    """Return the part of the state that a race belongs to: its buffer and its second access decide."""
    name, second = replay.name_of(race.first.span.buffer), race.second
    if name in RING:
        return "race_reload" if second is not None and second.is_write else "race_ring"
    if name:
        return "race_logits" if name == "logits" else "race_decode" if name in DECODE else "race_cache"
    return "race_free" if second is not None and second.work.call.name == "free" else "race_workspace"


def race(data_race: Race, replay: Replay) -> Wrong:
    """Describe two accesses that nothing orders, and what would order them."""
    first = data_race.first.work.call
    buffer = _buffer(data_race.first.span.buffer, replay)
    if data_race.second is None:
        edge = "let the host wait for it before the call returns"
        text = f"the host reads {buffer} when the call returns, but {_who(first, replay)} may still be running: {edge}"
        return Wrong(text, (first.line,), (first, None))
    second = data_race.second.work.call
    lo = max(data_race.first.span.lo, data_race.second.span.lo)
    hi = min(data_race.first.span.hi, data_race.second.span.hi)
    where = f"{_rows(lo, hi)} of {buffer}"
    does, did = ("writes" if access.is_write else "reads" for access in (data_race.second, data_race.first))
    text = f"{_who(second, replay)} {does} {where} and may run before {_who(first, replay)}, which {did}: "
    return Wrong(f"{text}{_edge(first, second, replay)}", (second.line, first.line), (first, second))


def garbage(call: LoggedCall, row: RowSpan, replay: Replay) -> Wrong:
    """Describe a kernel that reads a row to which nothing was computed or copied."""
    text = f"{_who(call, replay)} reads {_rows(row.lo, row.hi)} of {_buffer(row.buffer, replay)}, which holds garbage"
    return Wrong(text, (call.line,))


def serial(pair: Serial, replay: Replay) -> Wrong:
    """Describe a load and a kernel that must be able to run at the same time, and what orders them."""
    first, second = pair.first.call, pair.second.call
    layers = f" (layer {pair.second_layer})" if second.name == "attention" else ""
    text = f"{_who(second, replay)}{layers} comes after {_who(first, replay)}"
    why = "wait only for the load of its own layer"
    if first.name != "copy":
        why = "a load waits for the last reader of its own buffer only"
    edge = edge_of(pair, replay.calls)
    if edge is None:
        return Wrong(f"{text}, on one stream: {why}", (second.line, first.line), (first, second))
    by = f"by the {'host wait' if edge.name == 'sync' else 'wait'} of line {edge.line}"
    return Wrong(f"{text} {by}: {why}", (edge.line, second.line, first.line), (first, second))


def _edge(first: LoggedCall, second: LoggedCall, replay: Replay) -> str:
    """Return in words what would order the two calls."""
    streams = replay.device.streams
    if second.name == "free":
        return f"wait for it before the free, or name the buffer to stream {streams[first.stream]!r} by record_stream"
    mine, theirs = streams[first.stream], streams[second.stream]
    text = f"record an event on stream {mine!r} behind it, and let stream {theirs!r} wait for that event first"
    return text + _early_event(first, second, replay.calls)


def _early_event(first: LoggedCall, second: LoggedCall, calls: Sequence[LoggedCall]) -> str:
    """Say that a wait has no effect because its event was recorded before `first`; "" if there is no such wait."""
    before = [*takewhile(lambda call: call is not second, calls)]
    between = [*takewhile(lambda call: call is not first, reversed(before))]
    for number, wait in enumerate(between):
        if wait.name == "wait" and wait.stream == second.stream and wait.line:
            earlier = before[: len(before) - 1 - number]
            record = next(
                (call for call in reversed(earlier) if call.name == "record" and call.event == wait.event), None
            )
            if record is not None and record.stream == first.stream and record.line:
                return f" (the event that line {wait.line} waits for was recorded earlier, by line {record.line})"
    return ""


def _rows(lo: int, hi: int) -> str:
    return f"row {lo}" if hi == lo + 1 else f"rows {lo} to {hi - 1}"


def _buffer(number: int, replay: Replay) -> str:
    name, line = replay.name_of(number), replay.device.buffers[number].line
    return name or (f"the buffer of line {line}" if line else "the caller's k or v")


def _who(call: LoggedCall, replay: Replay) -> str:
    """Return a call in words, with its stream and its line."""
    where = f"stream {replay.device.streams[call.stream]!r}" + (f", line {call.line}" if call.line else "")
    return f"{described(call, replay)} ({where})"


def described(call: LoggedCall, replay: Replay) -> str:
    """Return what a call does, in the words of the assignment."""
    if call.name == "copy":
        return _copy(call, replay)
    if call.name in ("alloc", "free"):
        return f"{call.name} of {_buffer(call.buffer, replay)}"
    layer = call.arguments.get("layer")
    return f"{call.name} of layer {layer}" if layer is not None else call.name


def _copy(call: LoggedCall, replay: Replay) -> str:
    config = replay.config
    to, of = replay.name_of(call.writes[0].buffer), replay.name_of(call.reads[0].buffer)
    if of in CPU and to in RING:
        layer = call.reads[0].lo // config.cpu_rows
        return f"load of layer {layer} into buffer {call.writes[0].lo // config.max_seq_len}"
    if to in CPU:
        layer, row = divmod(call.writes[0].lo, config.cpu_rows)
        kind = "flush" if of in DECODE else "copy"
        return f"{kind} to block {row // config.block_size} of layer {layer} in {to}"
    return f"copy to {to}" if to else f"copy from {of}" if of else "copy"


_MOST = 7
"""The most calls that are shown from the first call of the pair on, and the most up to the second call."""
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
    """Return the arrow from a record to the wait at `place` for its event, if both are shown."""
    call = calls[place]
    if call.name not in ("wait", "sync") or call.event < 0:
        return None
    records = [at for at in range(place) if calls[at].name == "record" and calls[at].event == call.event]
    return [records[-1], place] if records else None
