"""The small engines of offload: a manager with two sequences, an engine, and runners with one to three buffers.

An engine moves rows in memory, and the oracle's state does not contain memory. So the caller remembers which rows were
written, and the last call. Each call is tried after each other call, to show whether the later call waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from grader.labs.plain_lab import SmallLines, State
from reference.operation import Operation

_PASSING = frozenset({"loads", "load_rows", "storage"})
_LAYERS, _SIZE = 2, 2
"""The layers of the engine, and the rows of a block."""
_VERY_FIRST, _FIRST = "load 0 0 [0] 1", ("offload 0 3 [0,1]", "offload 1 4 [1,0]")

_MANAGER = SmallLines(
    opening="manager 3 2",
    lines=(
        *(
            f"{call} {seq}"
            for seq in "ab"
            for call in ("can_append", "prefill_len", "decode_start", "blocks", "prefilled")
        ),
        *(f"allocate {seq} {tokens}" for seq in "ab" for tokens in (0, 1, 2, 3, 7)),
        *(f"may_append {seq}" for seq in "ab"),
        *(f"mark {seq} {tokens}" for seq in "ab" for tokens in (0, 1, 2, 3)),
        *(f"deallocate {seq}" for seq in "ab"),
        "another_manager 3 2 3",
    ),
    most=1800,
    passing=_PASSING,
)

Row = tuple[int, int, int]


class _EngineRows(NamedTuple):
    """What the caller of an engine remembers."""

    begun: int = 0
    """The number of calls of `_FIRST` that were made."""
    written: frozenset[Row] = frozenset()
    """Written rows of the CPU caches: layer, block, row."""
    stored: frozenset[tuple[int, int]] = frozenset()
    """Written rows of the decode buffers: layer, row."""
    loaded: frozenset[int] = frozenset()
    """The buffers that were loaded and have not been used yet."""
    last: str = ""


def _in_order(memory: object, state: State, operation: Operation) -> _EngineRows | None:  # noqa: ARG001 - see `Remember`
    """Begin with `_FIRST`, load only written rows, and use a loaded buffer before any call other than `load`."""
    rows = memory if isinstance(memory, _EngineRows) else _EngineRows()
    begun, written, stored, loaded, last = rows
    first, second = operation.numbers[:2]
    if str(operation) == _VERY_FIRST:
        return None if last else _EngineRows(loaded=frozenset({first}), last=_VERY_FIRST)
    if operation.name == "use":
        return _EngineRows(begun, written, stored, loaded - {first}, str(operation)) if first in loaded else None
    if begun < len(_FIRST) and str(operation) != _FIRST[begun]:
        return None
    match operation.name:
        case "load":
            _, layer, ids, tokens = operation.arguments
            if first in loaded or not _moved(layer, ids, tokens) <= written:
                return None
            loaded |= {first}
        case _ if loaded:
            return None
        case "offload":
            layer, tokens, ids = operation.arguments
            written |= _moved(layer, ids, tokens)
        case "store":
            stored |= {(first, second)}
        case "flush":
            flushed = {(layer, first, row) for layer in range(_LAYERS) for row in range(second, _SIZE)}
            written = written - flushed | {row for row in flushed if (row[0], row[2]) in stored}
    return _EngineRows(min(begun + 1, len(_FIRST)), written, stored, loaded, str(operation))


def _moved(layer: Any, ids: Any, tokens: Any) -> frozenset[Row]:
    """Return the rows in the CPU caches of the first tokens of a layer."""
    return frozenset((layer, ids[token // _SIZE], token % _SIZE) for token in range(tokens))


_ENGINE = SmallLines(
    opening=f"engine {_LAYERS} 2 {_SIZE} 2 4",
    lines=(
        *(_VERY_FIRST, *_FIRST),
        *("load 0 0 [0,1] 1", "load 1 1 [1] 2", "load 0 1 [1,0] 4", "load 1 0 [0] 1"),
        *("use 0 1", "use 1 1"),
        *("store 0 0", "store 1 1", "flush 1 0", "flush 0 1", "decode_rows 1 0 2"),
        *("offload 0 0 [0,1]", "store 0 2", "flush 0 2"),
    ),
    most=180,
    remember=_in_order,
    passing=_PASSING,
)


def _runner(arguments: str, *, seq: str = "a") -> SmallLines:
    """Return a runner that runs prompts of different lengths, one after the other."""
    return SmallLines(
        opening=f"runner {arguments}",
        lines=(
            *(f"prefill {seq} {tokens}" for tokens in ("[5]", "[3,1,2]", "[4,1,2,7]", "[1,2,3,4,5]")),
            *("prefill b [6,2]", f"decode {seq} 7", "decode b 9", f"finish {seq}", "finish b"),
        ),
        most=120,
        passing=_PASSING,
    )


SMALL = (
    _MANAGER,
    _ENGINE,
    _runner("2 3 2 2 4"),
    _runner("3 3 1 2 3"),
    _runner("2 3 3 3 5", seq="0"),
    _runner("3 3 2 1 4"),
)
