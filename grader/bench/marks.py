"""Run `grade` as `python -m grader` does, and note the CPU seconds of its parts in a file when it ends.

    python -I marks.py NOTES run PATH

This script is no part of `grade`: it wraps functions of `grade`. CPU time of this process counts for the innermost part
that has begun. CPU time of another program counts for the program's name.
"""

from __future__ import annotations

import resource
import time

_AT_START = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)

import atexit  # noqa: E402 - the clock starts before all other imports
import contextlib  # noqa: E402
import json  # noqa: E402
import runpy  # noqa: E402
import sys  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

IMPORTS, REST, STARTS = "imports", "options, and what is nowhere else", "start of programs, and their pipes"
"""Names of parts of this process that are no stage of a grading."""


class Clock:
    """Shares the CPU time of this process out among named parts."""

    def __init__(self) -> None:
        self.own: defaultdict[str, float] = defaultdict(float)
        self.programs: defaultdict[str, float] = defaultdict(float)
        self._part, self._since = IMPORTS, _AT_START[0]

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Context manager: count the time inside for this part, then continue with the part before."""
        around = self.begin(name)
        try:
            yield
        finally:
            self.begin(around)

    def begin(self, name: str) -> str:
        """Count the time from now on for part `name`; return the part that ends now."""
        now, before = time.process_time(), self._part
        self.own[before] += now - self._since
        self._part, self._since = name, now
        return before

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function wrapped so that its time counts for part `name`."""

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*arguments, **options)

        return timed


def main() -> None:
    """Run `grade` with the arguments after the first; the first names the file for the notes."""
    notes = Path(sys.argv.pop(1))
    clock = Clock()
    importing: Any = import_module("importlib._bootstrap")
    importing._find_and_load = clock.around(IMPORTS, importing._find_and_load)  # noqa: SLF001 - all imports use it
    _wrap_stages(clock)
    _wrap_programs(clock)
    atexit.register(lambda: notes.write_text(json.dumps(_noted(clock)), encoding="utf-8"))
    clock.begin(REST)
    runpy.run_module("grader", run_name="__main__", alter_sys=True)


def _noted(clock: Clock) -> dict[str, Any]:
    clock.begin(REST)
    return {
        "start": _AT_START[0],
        "before": _seconds(_AT_START[1]),
        "own": clock.own,
        "programs": clock.programs,
        "children": _seconds(resource.getrusage(resource.RUSAGE_CHILDREN)),
    }


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _wrap_stages(clock: Clock) -> None:
    """Wrap the functions with which the parts of `grade run` begin."""
    run: Any = import_module("grader.cli.run")
    pipeline: Any = import_module("grader.pipeline")
    attempt: Any = import_module("grader.attempt")
    timed = attempt.timed
    run.lab_named = clock.around("opening the lab", run.lab_named)
    run.Selection.cases = clock.around("loading cases", run.Selection.cases)
    run.FORMATS["text"] = clock.around("report", run.FORMATS["text"])
    pipeline.grade = clock.around("grading, between its stages", pipeline.grade)
    attempt.timed = lambda step, before: clock.around(f"stage {step.name}", timed)(step, before)
    pipeline.record = clock.around("record", pipeline.record)


def _wrap_programs(clock: Clock) -> None:
    """Wrap the function that starts programs, to count the time of each program."""
    process: Any = import_module("grader.system.process")
    run = process.run

    def noted(command: Sequence[str] | Callable[..., Sequence[str]], **options: Any) -> Any:
        named: list[str] = []

        def words(ends: Sequence[int]) -> Sequence[str]:
            arguments = command(ends) if callable(command) else command
            named.append(_name(arguments))
            return arguments

        with clock.part(STARTS):
            done = run(words, **options)
        clock.programs[named[0]] += done.cpu_seconds
        return done

    process.run = noted


def _name(arguments: Sequence[str]) -> str:
    """Return the name of the program that the launcher starts, or of the program itself if there is no launcher."""
    words = arguments[arguments.index("--") + 1 :] if "--" in arguments else arguments
    return " ".join([Path(words[0]).name, *(word for word in words[1:] if word == "--version")])


if __name__ == "__main__":
    main()
