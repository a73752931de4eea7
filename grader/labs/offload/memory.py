"""The memory of a program: the storage that its constructor allocates (Part 2), and what a call has (Constraint 4)."""

from __future__ import annotations

from typing import Any

from grader.labs.offload.device import STORAGE, VALUE_BYTES
from grader.labs.offload.replay import Log, Replay
from grader.labs.offload.sentences import Findings, Wrong

_MOST_LAYERS = 2


def storage_of(replay: Replay, log: Log, handles: object, *, logits: bool) -> dict[str, Any]:
    """Return the storage after the constructor: rows, width and place of each buffer, and what else was allocated.

    `handles` is what was read of the program's attributes.
    """
    owner = handles.get("compute_stream") if isinstance(handles, dict) else None
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


def check(
    findings: Findings, replay: Replay, log: Log, tokens: int, *, is_prefill: bool, of_driver: list[int]
) -> list[int]:
    """Find too much memory in a call for a sequence of so many tokens (Constraint 4).

    Return the most bytes that it had beyond the storage and the driver's buffers, and how many are allowed.
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
    used = log.most_bytes - replay.bytes_of([*storage, *of_driver])
    if used > limit and log.created:  # what an earlier call left behind was reported at that call
        text = f"{used} bytes of device memory are allocated beyond the storage, and {limit} are allowed"
        findings.add("memory", Wrong(text, (log.most_line,)))
    return [used, limit]
