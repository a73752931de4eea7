"""Recorded expectations: what an oracle does in given traces, for copies of the grader that must not have the oracle.

In a lab with Python submissions the oracle is nearly the solution, so a bundle for students does not have it. Instead
it has a file with the replies and states of the public cases (`FILE` in the folder of cases), and the same judge
compares with this file. The file does not have what the oracle does after a difference, so a case ends at a difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from grader.core.case import Case, frozen, listed
from grader.core.errors import CaseFileError, FileProblem
from grader.core.model import CannotFollow, ModelFactory, play
from reference.operation import Operation, Reply, Trace
from reference.oracle import Plain

FILE = "expected.json.gz"


def recorded(cases: Iterable[Case], model: ModelFactory) -> bytes:
    """Return the content of the file: what the model's oracle does in these cases, random traces included."""
    traces: dict[str, list[Any]] = {}
    generated: dict[str, list[Any]] = {}
    for case in cases:
        _record(traces, case.trace, model)
        if case.generated is not None:
            for seed, operations in zip(case.generated.seeds, case.generated.traces, strict=True):
                _record(traces, Trace(operations=operations, settings=case.trace.settings), model)
                generated[f"{seed}:{case.generated.length}"] = listed(operations)
    import gzip  # noqa: PLC0415 - few copies of the grader have such a file

    text = json.dumps({"traces": traces, "generated": generated}, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), 9, mtime=0)


def _record(traces: dict[str, list[Any]], trace: Trace, model: ModelFactory) -> None:
    engine = model(trace)
    traces[_key(trace)] = [
        [
            *(step.reply.text, step.reply.refused, step.reply.clause, sorted(step.reply.circumstances)),
            json.dumps(engine.describe(step.record)["state"], separators=(",", ":")),  # in the order of `state()`
        ]
        for step in play(engine, trace)
    ]


def recorded_traces(path: Path) -> Callable[[int, int], Sequence[Operation]]:
    """Return a function that replaces the oracle's generator: it maps a seed and a length to recorded operations."""

    def traces(seed: int, length: int) -> Sequence[Operation]:
        lines = _file(path)["generated"].get(f"{seed}:{length}")
        if lines is None:
            raise _unknown(path, f"no random trace of seed {seed} and length {length} is recorded")
        return [Operation(name=name, arguments=tuple(map(frozen, arguments))) for name, arguments in lines]

    return traces


class RecordedOracle:
    """An oracle that only knows one trace; see `reference.oracle.Oracle`."""

    def __init__(self, path: Path, trace: Trace) -> None:
        """Find in the file this trace, or a trace that begins with it. Raises `CaseFileError` if there is none."""
        traces, key = _file(path)["traces"], _key(trace)
        steps = traces.get(key) or next((traces[text] for text in traces if text.startswith(key)), None)
        if steps is None:
            raise _unknown(path, "a case was changed or added; this copy of the grader only knows the public cases")
        self._operations = trace.operations
        self._replies = [
            Reply(text=text, refused=refused, clause=clause, circumstances=frozenset(words))
            for text, refused, clause, words, _ in steps
        ]
        self._states: list[dict[str, Plain]] = [json.loads(state) for *_, state in steps]
        self._now: dict[str, Plain] | None = None

    def apply(self, operation: Operation) -> Reply:
        """Return the recorded reply. Raises `CannotFollow` if the present state is not the recorded one."""
        number = next(place for place, other in enumerate(self._operations) if other is operation)
        before = self._states[number - 1] if number else None
        if self._now != before:
            raise CannotFollow("this copy of the grader has no reference, only what was recorded of it")
        self._now = self._states[number]
        return self._replies[number]

    def state(self) -> dict[str, Plain]:
        """Return the state after the last operation or `restore`; {} before the first operation."""
        return self._now or {}

    def restore(self, state: dict[str, Plain]) -> None:
        """Set the state, which need not be a recorded one."""
        self._now = state


def _key(trace: Trace) -> str:
    """Return a text of everything that affects what happens in a trace."""
    lines = [f"{key}={value}" for key, value in sorted(trace.settings.items()) if key != "seed"]
    return "".join(f"{line}\n" for line in [*lines, *map(str, trace.operations)])


@lru_cache(maxsize=2)
def _file(path: Path) -> dict[str, Any]:
    import gzip  # noqa: PLC0415 - few copies of the grader have such a file

    try:
        content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        raise _unknown(path, f"it cannot be read ({error}); unpack the bundle again") from error
    return content


def _unknown(path: Path, message: str) -> CaseFileError:
    return CaseFileError([FileProblem(path, 1, message)])
