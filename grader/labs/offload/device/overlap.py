"""Whether loads run beside compute in a decode step (Constraint 8 of the handout)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from grader.labs.offload.device.device import Call
from grader.labs.offload.device.races import Clocks, Work, is_before


class Serial(NamedTuple):
    """Two pieces of work that the program orders although they must be able to run at the same time."""

    first: Work
    second: Work
    first_layer: int
    second_layer: int


def serialised(
    loads: Mapping[int, Sequence[Work]],
    attentions: Mapping[int, Work],
    ends: Mapping[int, Work],
    num_buffers: int,
) -> Iterator[Serial]:
    """Yield what a step orders too much, at most one pair for each two layers.

    `loads` are the copies of each layer into the ring, `attentions` its attention, `ends` its `o_proj`.
    """
    for layer, copies in loads.items():
        for before, attention in attentions.items():
            late = next((copy for copy in copies if is_before(copy, attention)), None)
            if before < layer and late is not None:
                yield Serial(late, attention, layer, before)
        for before, end in ends.items():
            late = next((copy for copy in copies if is_before(end, copy)), None)
            if layer - num_buffers < before < layer and late is not None:
                yield Serial(end, late, before, layer)


def edge_of(pair: Serial, calls: Sequence[Call]) -> Call | None:
    """The wait, of a stream or of the host, that brings the second behind the first; None where they share a stream.

    `calls` are all calls of the program.
    """
    first, second = pair.first, pair.second.call
    if first.call.stream == second.stream:
        return None
    clocks, is_behind = Clocks(), False
    for call in calls:
        clocks.take(call)
        if call is second:
            break
        is_behind = is_behind or call is first.call
        if is_behind and call.name in ("sync", "wait"):
            known = (clocks.host, clocks.streams[second.stream])
            if any(first.call.stream < len(clock) and clock[first.call.stream] >= first.place for clock in known):
                return call
    return None
