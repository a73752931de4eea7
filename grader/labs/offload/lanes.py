"""The picture of two calls that are out of order: the calls around them, by stream."""

from __future__ import annotations

from typing import Any

from grader.labs.offload.device import LoggedCall
from grader.labs.offload.replay import Replay

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
