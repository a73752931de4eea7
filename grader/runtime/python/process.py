"""Run the harness in the sandbox, split what it sends into frames, and describe how a case ended.

A frame is a kind (1 byte), the number of a case (4), a length (4) and a body; harness/play.py lists the kinds. Frames
are written by the harness's first process, which runs no student code; the bodies of most kinds come from a student's
process and may be anything.
"""

from __future__ import annotations

import json
import marshal
import math
import os
import signal
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any, NamedTuple

from grader.core.errors import CannotStart
from grader.core.verdict import EXCEPTION, REFUSED, SourceLine, Verdict
from grader.runtime.observation import NO_TIME, Ending
from grader.runtime.python.driver import PythonDriver, module_code
from grader.system import sandbox
from grader.system.folders import closed_folders
from grader.system.process import Completed
from grader.system.sandbox import RUN_LIMITS, Limits, Workspace

OWN = os.path.realpath(sys.executable)
"""The interpreter that runs the grader."""
_PLACES = ("/usr/local/bin", "/usr/bin")
"""Where an interpreter that every user may run is looked for."""

_HARNESS = Path(__file__).parent / "harness"
_HEAD = struct.Struct(">BII")
_LENGTH = struct.Struct(">I")
_STARTING = 1.0
_VARIABLES = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
_OPTIONS = ("-s", "-S", "-P", "-B")
_TRIED = b"import select, struct"
"""What an interpreter must be able to do: import a module of Python and one of C. More would take more time."""
_CHILD_SECONDS = 3
"""CPU seconds after which the kernel ends a child, whatever else fails."""
_ANSWER = 0.1
"""Seconds for an answer to where a program is."""
_MOST_BYTES = 8 << 20
"""Of all messages of one child."""


class PythonFrame(NamedTuple):
    """One message of the harness."""

    kind: str
    case: int
    body: bytes


@cache
def interpreter() -> str:
    """Return the interpreter that runs submissions: the grader's own, without its packages, if it works in the sandbox.

    If it does not, as in a folder that only root may enter, return one of the same minor version: its bytecode is the
    same. Raises `CannotStart` when there is none.
    """
    trouble = _trouble(OWN)
    if not trouble:
        return OWN
    name = "python{}.{}".format(*sys.version_info)
    for folder in _PLACES:
        if not _trouble(program := os.path.realpath(f"{folder}/{name}")):
            return program
    closed = " ".join(sorted({*closed_folders(Path(OWN)), *closed_folders(Path(os.__file__))}))
    raise CannotStart(
        f"{OWN} does not run in the sandbox ({trouble}). Put a {name} that every user may run into "
        + " or ".join(_PLACES)
        + (f", or let other users enter its folders: chmod o+x {closed}" if closed and os.geteuid() == 0 else "")
    )


def _trouble(program: str) -> str:
    """Return why this interpreter does not run our bytecode in the sandbox; "" if it does."""
    with sandbox.workspace(tools=(program,)) as work:
        work.add("tried.pyc", _bytecode(_TRIED, "tried.py"))
        # `env`, which is everywhere, says itself why a program does not start
        command = ["env", program, *_OPTIONS, "tried.pyc"]
        done = work.run(command, limits=Limits(wall_seconds=60), variables=_VARIABLES)
    if done.succeeded:
        return ""
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if ": " in line]
    return lines[-1] if lines else "it does not come to its end"


def run(
    work: Workspace,
    source: bytes,
    driver: PythonDriver,
    lines: Iterable[Mapping[str, object]],
    *,
    modules: Iterable[str] = (),
    check: bool = False,
    total: float,
) -> Completed:
    """Run one harness on a source with these messages of its plan, at most `total` seconds of its own time."""
    limits, pace = work.budget.limits, work.budget.pace
    names, program = tuple(modules), interpreter()
    header = {
        "check": check,
        "every": driver.every,
        "module": driver.module,
        "file": driver.file,
        "source": source,
        "driver": driver.in_harness(),
        "demanded": list(driver.demanded),
        "given": {name: module_code(text, f"{name}.py") for name, text in driver.given.items()},
        "imports": [*names, *driver.imports()],
        "imports_allowed": sorted({*(name.partition(".")[0] for name in names), *driver.given}),
        "limits": {
            "operation": limits.python_operation * pace,
            "least": limits.python_least * pace,
            "hangs": limits.hangs * pace,
            "total": total * pace,
            "answer": _ANSWER * pace,
            "child": math.ceil(_CHILD_SECONDS * pace),
            "bytes": _MOST_BYTES,
        },
    }
    work.clear()
    for name, content in _harness().items():
        work.add(name, content)
    plan = b"".join(map(_message, (header, *lines)))
    patience = total + _STARTING
    return work.run(
        lambda ends: [program, *_OPTIONS, "play.pyc", *map(str, ends)],
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


def _message(value: Mapping[str, Any]) -> bytes:
    """A message of the feed, as harness/play.py reads it."""
    content = marshal.dumps(dict(value))
    return _LENGTH.pack(len(content)) + content


@cache
def _harness() -> dict[str, bytes]:
    """The files of the harness, compiled: the interpreter would otherwise compile them at every start, in 7 ms."""
    return {f"{path.stem}.pyc": _bytecode(path.read_bytes(), path.name) for path in sorted(_HARNESS.glob("*.py"))}


def _bytecode(source: bytes, name: str) -> bytes:
    """The content of a .pyc file whose source nobody looks for: magic number, flags, time, size and code."""
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def frames(content: bytes) -> Iterator[PythonFrame]:
    """Yield the frames of a channel; what is cut off at its end is no frame."""
    at = 0
    while at + _HEAD.size <= len(content):
        kind, case, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        if at + length > len(content):
            return
        yield PythonFrame(chr(kind), case, content[at : at + length])
        at += length


def decoded(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; {} where a program sent something else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_MEGABYTES = 192
"""The memory of a program; cage.py sets it."""
_MOST_LINES = 16
_MOST_LINE = 10**6
_MOST_CHARACTERS = 300
_LEFT, _STUMBLED = 1, 2
"""Exit codes of a child that reported an error, and of one in which the harness could not go on."""

_OF_A_DRIVER = "BufferError"
"""What functions of a driver raise for an error that is no refusal, with its name and message as their message."""

_PHRASES = {
    "MemoryError": f"needs more than {_MEGABYTES} MB of memory",
    "RecursionError": "calls itself again and again until the stack is full",
    "SystemExit": "ends the whole program (SystemExit); take that out: a call returns or raises an error",
    "FileNotFoundError": "raises FileNotFoundError: no file can be read when it is graded",
    "KeyboardInterrupt": "raises KeyboardInterrupt, as if somebody had pressed Ctrl-C",
}


_BELOW = 'below if __name__ == "__main__":'

_WAITING = {
    "builtins.breakpoint": "calls breakpoint(), but no debugger is there when it is graded; take it out",
    "builtins.input": "calls input(), but nobody can type anything when it is graded; take it out",
}


def _refused(event: str) -> str:
    """What a program does that no program may do, by the name of an audit event or a function."""
    why = "a graded program opens no file or socket, and starts no program or thread"
    return _WAITING.get(event, f"calls {event}, which is refused: {why}")


def lines_of(entries: object, file: str, *, most: int = _MOST_LINES) -> tuple[SourceLine, ...]:
    """Return the lines of a stack that a child reported, the innermost call first; what is no line is left out.

    A child reports the called method first.
    """
    if not isinstance(entries, list):
        return ()
    lines = [
        SourceLine(file=file, line=entry[0], function=entry[1][:80])
        for entry in entries[:most]
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)
        if type(entry[0]) is int and 0 < entry[0] <= _MOST_LINE
    ]
    return tuple(lines[::-1])


def ending(
    call: str,
    file: str,
    *,
    error: dict[str, Any] | None,
    asked: dict[str, Any] | None,
    end: dict[str, Any],
    slow_import: bool = False,
) -> Ending:
    """Describe the end of a case in `call`.

    `error` is the child's report of an error, `asked` its answer to where it was, `end` how the harness saw it end.
    """
    if end.get("no_time"):
        sentence = "not run: calls that are far too slow used up the time for all cases"
        if slow_import:
            sentence = f"not run: importing {file} takes too long; put what computes or tests {_BELOW}"
        return Ending(kind=NO_TIME, verdict=Verdict.TIME_LIMIT_EXCEEDED, sentence=sentence)
    if end.get("hang"):
        lines = lines_of(asked.get("lines"), file) if asked is not None else ()
        if call == file:
            sentence = f"importing {file} takes more than two seconds: put what computes or tests {_BELOW}"
            return _ending("hang", sentence, lines, Verdict.TIME_LIMIT_EXCEEDED)
        return _ending("hang", f"{call} does not come back within its time limit", lines, Verdict.TIME_LIMIT_EXCEEDED)
    if error is not None:
        return _error(call, file, error)
    return _ending(*_end_of_process(call, end))


def _end_of_process(call: str, end: dict[str, Any]) -> tuple[str, str]:
    """Return kind and sentence for the end of a process that reported nothing."""
    if end.get("flood"):
        return "stopped", f"{call} leaves a state more than a thousand times larger than any correct one"
    if end.get("large"):
        return "stopped", f"{call} {_PHRASES['MemoryError']}"
    status = end.get("status")
    if not isinstance(status, int):
        return "stopped", f"the program ends in {call}, and the grader's harness with it"
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return "crash", f"{call} crashes the interpreter ({signal.strsignal(-code) or f'signal {-code}'})"
    if code == _STUMBLED:
        return "stopped", f"{call} leaves the interpreter in a state in which nothing more can be called"
    return REFUSED, f"{call} ends the whole program with exit code {code}; take that out"


def _ending(
    kind: str, sentence: str, lines: Iterable[SourceLine] = (), verdict: Verdict = Verdict.RUN_TIME_ERROR
) -> Ending:
    return Ending(kind=kind, verdict=verdict, sentence=sentence, lines=tuple(lines))


def _error(call: str, file: str, error: dict[str, Any]) -> Ending:
    name, message = (str(error.get(key, ""))[:_MOST_CHARACTERS] for key in ("error", "message"))
    lines, refused = lines_of(error.get("lines"), file), str(error.get("refused", ""))[:_MOST_CHARACTERS]
    raised = message if name == _OF_A_DRIVER and ": " in message else f"{name}: {message}" if message else name
    if error.get("where") == "import":
        if name == "SystemExit":
            sentence = f"{file} ends the program when it is imported: put such code {_BELOW}"
            return _ending(EXCEPTION, sentence, lines)
        why = f"it {_refused(refused)}" if refused else raised
        return _ending(EXCEPTION, f"{file} cannot be imported: {why}", lines)
    if error.get("where") == "argument":
        return _ending(EXCEPTION, f"{call} cannot be called, because an argument does not exist ({raised})", lines)
    if refused:
        return _ending(REFUSED, f"{call} {_refused(refused)}", lines)
    if name == "FileNotFoundError" and message:  # the program's own, not that of a file
        return _ending(EXCEPTION, f"{call} raises {raised}", lines)
    kind = REFUSED if name in ("SystemExit", "FileNotFoundError") else EXCEPTION
    return _ending(kind, f"{call} {_PHRASES.get(name) or f'raises {raised}'}", lines)
