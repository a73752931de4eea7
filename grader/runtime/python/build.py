"""Look at a submission before it plays: does it compile, and define what is demanded?

The text is compiled, and then executed once, in processes of the sandbox. What fails there would fail in every case; it
is told once, with its line. A class or function that is missing costs what is judged by calling it, and the points for
being complete: an unfinished file is no file that cannot be imported. A file that defines nothing of what is demanded
is none of this assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.core.errors import TooBusy
from grader.core.verdict import NOT_IMPORTED, Finding, SourceLine, Tool, Verdict
from grader.runtime.protocol import Built, Program
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.process import decoded, ending, frames, run
from grader.system.sandbox import Workspace

_COMPILED, _EXECUTED = 0, 1
"""The harness's numbers of the two parts of a check."""
_SECONDS = 5.0
_PROCESS = 0.01
"""Seconds of a process that executes an empty module."""
_SLOW = 0.02
"""Seconds of a module, with which some 150 cases would take 3 seconds more."""
_SLOWEST = 2.0
"""Seconds after which an import is ended. One that sends messages of its own may go on, but earns no time by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonProgram(Program):
    """A module that can be executed, and the modules that must be there for it."""

    modules: tuple[str, ...] = ()
    import_seconds: float = 0.0
    """Seconds that it computes or sleeps while the module is executed."""


def build(work: Workspace, source: bytes, driver: PythonDriver) -> Built:
    """Check a submission. Its program is its text; there is none when something is wrong with it."""
    done = run(work, source, driver, (), check=True, total=_SECONDS)
    if done.timed_out and not done.silent:
        raise TooBusy("the machine is too busy: a module was not checked in minutes, although it computed little")
    file = driver.file
    seen = list(frames(done.channels[0]))
    looked = next((decoded(frame.body) for frame in seen if frame[:2] == ("C", _COMPILED)), None)
    findings = list(_of_the_text(looked, file))
    taken = 0.0
    missing: tuple[str, ...] = ()
    late = done.slow or done.silent or looked is None
    if not findings:
        executed = {frame.kind: decoded(frame.body) for frame in seen if frame.case == _EXECUTED}
        if done.slow or done.silent or done.large:
            executed["E"] = {"large": True} if done.large else {"hang": True}
        findings = list(_of_the_module(executed, file, driver.demanded))
        missing = _missing(executed, driver.demanded)
        late |= any(executed.get("E", {}).get(reason) for reason in ("hang", "no_time"))
        taken = _own(executed.get("E", {})) / work.budget.pace
    modules, empty = (_names(looked or {}, key) for key in ("imports", "empty"))
    importing = max(0.0, min(taken, _SLOWEST) - _PROCESS)
    program = PythonProgram(
        content=source,
        source_name=file,
        modules=modules,
        begins_slowly=importing > _SLOW,
        import_seconds=importing,
    )
    return Built(
        program=None if findings else program,
        missing=missing,
        unwritten=driver.calling(empty),
        findings=tuple(findings),
        stopped=bool(findings),  # nothing can be relaxed
        late=late,
        cpu_seconds=done.cpu_seconds,
    )


def _own(ended: Mapping[str, object]) -> float:
    """The seconds that a child computed or slept, by the harness's report of its end."""
    seconds = ended.get("own")
    return seconds if isinstance(seconds, float) else 0.0


def _names(looked: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = looked.get(key)
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _of_the_text(looked: Mapping[str, object] | None, file: str) -> Iterator[Finding]:
    if looked is None:
        yield _finding(f"{file} cannot be compiled: the compiler needs too much time or memory for it")
        return
    problems = looked.get("problems")
    for line, column, message in problems if isinstance(problems, list) else ():
        yield _finding(message, SourceLine(file=file, line=line, column=column))


def _of_the_module(executed: Mapping[str, dict[str, object]], file: str, demanded: Sequence[str]) -> Iterator[Finding]:
    """Yield what is wrong with a module that was executed; the harness's frames by their kinds."""
    if "D" not in executed:
        end = ending(file, file, error=executed.get("X"), asked=executed.get("H"), end=executed.get("E", {}))
        yield _finding(end.sentence, *end.lines)
        return
    if len(missing := _missing(executed, demanded)) == len(demanded):
        for name in missing:
            yield _finding(f"{file} defines no {name}")


def _missing(executed: Mapping[str, dict[str, object]], demanded: Sequence[str]) -> tuple[str, ...]:
    """Return the demanded names that a module does not define."""
    names = executed.get("C", {}).get("missing")
    return tuple(name for name in demanded if name in names) if isinstance(names, list) else ()


def _finding(message: str, *source: SourceLine) -> Finding:
    return Finding(
        rule="",
        verdict=Verdict.COMPILE_ERROR,
        tool=Tool.BUILD,
        kind=NOT_IMPORTED,
        message=message,
        source=source[::-1],  # the innermost line first
    )
