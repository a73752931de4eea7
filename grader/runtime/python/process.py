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
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any, NamedTuple

from grader.core.errors import CannotStart
from grader.core.verdict import EXCEPTION, REFUSED, SourceLine, Verdict
from grader.runtime.protocol import NO_TIME, Ending, Program
from grader.runtime.python.driver import PythonDriver, module_code
from grader.system import sandbox
from grader.system.folders import closed_folders
from grader.system.process import Completed
from grader.system.sandbox import RUN_LIMITS, Limits, Workspace

OWN = os.path.realpath(sys.executable)
"""The interpreter that runs the grader."""
_PLACES = ("/usr/local/bin", "/usr/bin")
"""Folders in which to look for an interpreter that every user may run."""

_HARNESS = Path(__file__).parent / "harness"
_HEAD = struct.Struct(">BII")
_LENGTH = struct.Struct(">I")
_STARTING = 1.0
_VARIABLES = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
_OPTIONS = ("-s", "-S", "-P", "-B")
_TRIED = b"import select, struct"
"""A program that an interpreter must be able to run: it imports a module in Python and one in C."""
_FROM_OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
_CHILD_SECONDS = 3
"""The kernel ends a child that computes this many seconds longer than the total time, if the harness does not."""
_ANSWER = 0.1
"""The seconds for a child's answer when it is asked where its program is."""
_MOST_BYTES = 8 << 20
"""The most bytes of all messages of one child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonProgram(Program):
    """A module that can be executed, and the modules that must be imported for it."""

    modules: tuple[str, ...] = ()
    import_seconds: float = 0.0
    """The seconds in which the module computes or sleeps while it is executed."""


class PythonFrame(NamedTuple):
    """One message of the harness."""

    kind: str
    case: int
    body: bytes


@cache
def interpreter() -> str:
    """Return the interpreter that runs submissions: the grader's own, without its packages, if it works in the sandbox.

    If it does not work, as in a folder that only root may enter, return one of the same minor version, which has the
    same bytecode. Raises `CannotStart` if there is none.
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
    """Return why this interpreter does not run the harness's bytecode in the sandbox; "" if it does."""
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
    program: PythonProgram,
    driver: PythonDriver,
    lines: Iterable[Mapping[str, object]],
    *,
    check: bool = False,
    total: float,
) -> Completed:
    """Run one harness on a program, and send it these messages (`lines`). `total`: the most seconds of its own time."""
    limits, pace, python = work.budget.limits, work.budget.pace, interpreter()
    header = {
        "check": check,
        "every": driver.every,
        "module": driver.module,
        "file": driver.file,
        "source": program.content,
        "driver": driver.in_harness(),
        "demanded": list(driver.demanded),
        "given": {name: module_code(text, f"{name}.py") for name, text in driver.given.items()},
        "imports": [*program.modules, *driver.imports()],
        "imports_allowed": sorted({*(name.partition(".")[0] for name in program.modules), *driver.given}),
        "limits": {
            "operation": limits.python_operation * pace,
            "least": limits.python_least * pace,
            "hangs": limits.hangs * pace,
            "total": total * pace,
            "answer": _ANSWER * pace,
            "child": math.ceil((_CHILD_SECONDS + total) * pace),
            "bytes": _MOST_BYTES,
        },
    }
    work.clear()
    for name, content in _harness().items():
        work.add(name, content)
    plan = b"".join(map(_message, (header, *lines)))
    patience = total + _STARTING
    return work.run(
        lambda ends: [python, *_OPTIONS, "play.pyc", *map(str, ends)],
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
    """Return a message for the harness, in the format in which harness/play.py reads FEED."""
    content = marshal.dumps(dict(value))
    return _LENGTH.pack(len(content)) + content


@cache
def _harness() -> dict[str, bytes]:
    """Return the harness's files, compiled: otherwise the interpreter would compile them at each start, in 7 ms."""
    return {f"{path.stem}.pyc": _bytecode(path.read_bytes(), path.name) for path in sorted(_HARNESS.glob("*.py"))}


def _bytecode(source: bytes, name: str) -> bytes:
    """Return the content of a .pyc file without a source file: magic number, flags, time, size and code."""
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def python_program(program: Program) -> PythonProgram:
    """Return the same program, typed as one that this runtime's build made."""
    assert isinstance(program, PythonProgram)
    return program


def frames(content: bytes) -> Iterator[PythonFrame]:
    """Yield the frames of a channel; an incomplete frame at the end is left out."""
    at = 0
    while at + _HEAD.size <= len(content):
        kind, case, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        if at + length > len(content):
            return
        yield PythonFrame(chr(kind), case, content[at : at + length])
        at += length


def decoded(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; {} if a program sent something else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_MEGABYTES = 192
"""The limit of a program's memory, which cage.py sets."""
_MOST_LINES = 16
_MOST_LINE = 10**6
_MOST_CHARACTERS = 300
_LEFT, _STUMBLED = 1, 2
"""Exit codes of a child that reported an error, and of a child in which the harness could not continue."""

_OF_A_DRIVER = "BufferError"
"""Functions of a driver raise this for an error that is not a refusal. Its message has the error's name and message."""

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
    """Return the words for a refused action, by the name of its audit event or function."""
    why = "a graded program opens no file or socket, and starts no program or thread"
    return _WAITING.get(event, f"calls {event}, which is refused: {why}")


def lines_of(entries: object, file: str, *, most: int = _MOST_LINES) -> tuple[SourceLine, ...]:
    """Return the lines of a stack that a child reported, the innermost call first. Malformed entries are left out.

    A child reports the outermost call first.
    """
    if not isinstance(entries, list):
        return ()
    lines = [
        SourceLine(file=file, line=entry[0], function=entry[1][:80])
        for entry in entries[-most:]
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)
        if type(entry[0]) is int and 0 < entry[0] <= _MOST_LINE
    ]
    return tuple(lines[::-1])


def ending(call: str, file: str, reports: Mapping[str, dict[str, Any]], *, slow_import: bool = False) -> Ending:
    """Describe how a case ended in `call`.

    `reports` has the harness's messages by kind: X: an error that the child reported; H: where the program was when its
    time was used up; E: how the child ended. `slow_import`: the import takes most of the time of a short case.
    """
    end = reports.get("E", {})
    if end.get("no_time"):
        sentence = "not run: calls that are far too slow used up the time for all cases"
        if slow_import:
            sentence = f"not run: importing {file} takes too long; put what computes or tests {_BELOW}"
        return Ending(kind=NO_TIME, verdict=Verdict.TIME_LIMIT_EXCEEDED, sentence=sentence)
    if end.get("hang"):
        lines = lines_of(reports.get("H", {}).get("lines"), file)
        if call == file:
            sentence = f"importing {file} takes more than two seconds: put what computes or tests {_BELOW}"
            return _ending("hang", sentence, lines, Verdict.TIME_LIMIT_EXCEEDED)
        return _ending("hang", f"{call} does not come back within its time limit", lines, Verdict.TIME_LIMIT_EXCEEDED)
    if "X" in reports:
        return _error(call, file, reports["X"])
    return _ending(*_end_of_process(call, end))


def unexplained(reports: Mapping[str, dict[str, Any]]) -> str:
    """Return how a child or its harness ended, if something outside the program caused that; "" otherwise.

    A program cannot send these signals itself. A child that closed its pipe and did not end gets one from the harness;
    it has a second try, too.
    """
    end = reports.get("E", {})
    if "X" in reports or any(end.get(reason) for reason in ("no_time", "hang", "flood", "large")):
        return ""
    status = end.get("status")
    if not isinstance(status, int):
        return "was not seen to its end"
    code = -os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(code).name}" if code in _FROM_OUTSIDE else ""


def _end_of_process(call: str, end: dict[str, Any]) -> tuple[str, str]:
    """Return the kind and the sentence of an ending, for a child that ended without a report."""
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
    if name == "FileNotFoundError" and message:  # raised by the program itself: that of a missing file has no message
        return _ending(EXCEPTION, f"{call} raises {raised}", lines)
    kind = REFUSED if name in ("SystemExit", "FileNotFoundError") else EXCEPTION
    return _ending(kind, f"{call} {_PHRASES.get(name) or f'raises {raised}'}", lines)
