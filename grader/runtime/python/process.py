"""Run the harness in the sandbox, and split what it sends into frames.

A frame is a kind (1 byte), the number of a case (4), a length (4) and a body; harness/play.py lists the kinds. Frames
are written by the harness's first process, which runs no student code; the bodies of most kinds come from a student's
process and may be anything.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from grader.runtime.python.table import CallTable
from grader.system.process import Completed
from grader.system.sandbox import RUN_LIMITS, Workspace

INTERPRETER = os.path.realpath(sys.executable)
"""The interpreter that runs submissions: the grader's own without its packages."""

_HARNESS = Path(__file__).parent / "harness"
_HEAD = struct.Struct(">BII")
_STARTING = 1.0
_VARIABLES = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
_OPTIONS = ("-s", "-S", "-P", "-B")
_CHILD_SECONDS = 3
"""CPU seconds after which the kernel ends a child, whatever else fails."""
_MOST_BYTES = 8 << 20
"""Of all messages of one case; of a batch of traces as many for each."""


class Frame(NamedTuple):
    """One message of the harness."""

    kind: str
    case: int
    body: bytes


def run(
    work: Workspace,
    source: bytes,
    table: CallTable,
    lines: Iterable[Mapping[str, object]],
    *,
    given: Mapping[str, str],
    modules: Iterable[str] = (),
    check: bool = False,
    total: float,
    most_bytes: int = _MOST_BYTES,
) -> Completed:
    """Run one harness on a source with these lines of its plan, at most `total` seconds of its own time."""
    limits = work.budget.limits
    names = tuple(modules)
    header = {
        "check": check,
        "every": table.every,
        "module": table.module,
        "file": f"{table.module}.py",
        "source": source.decode("latin-1"),
        "table": table.described(),
        "demanded": list(table.demanded),
        "given": dict(given),
        "imports": list(names),
        "imports_allowed": sorted({*(name.partition(".")[0] for name in names), *given}),
        "limits": {
            "operation": limits.python_operation,
            "least": limits.python_least,
            "hangs": limits.hangs,
            "total": total,
            "child": _CHILD_SECONDS,
            "bytes": most_bytes,
        },
    }
    work.clear()
    for name, content in _harness().items():
        work.add(name, content)
    plan = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in (header, *lines))
    patience = total + _STARTING
    return work.run(
        lambda ends: [INTERPRETER, *_OPTIONS, "play.py", *map(str, ends)],
        limits=replace(
            RUN_LIMITS,
            silent_seconds=patience,
            silent_start_seconds=patience,
            own_seconds=max(0.1, min(patience, work.budget.cpu)),
            sees_processes=False,
            fixed_addresses=True,
        ),
        feeds=[plan],
        channels=1,
        variables=_VARIABLES,
    )


@cache
def _harness() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(_HARNESS.glob("*.py"))}


def frames(content: bytes) -> Iterator[Frame]:
    """Yield the frames of a channel; what is cut off at its end is no frame."""
    at = 0
    while at + _HEAD.size <= len(content):
        kind, case, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        if at + length > len(content):
            return
        yield Frame(chr(kind), case, content[at : at + length])
        at += length


def decoded(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; {} where a program sent something else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
