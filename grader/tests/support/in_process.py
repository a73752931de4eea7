"""Calls the command line's entry in this process, and takes back what that changes: a start costs 0.2 s of CPU.

The streams are real descriptors, because programs that a command starts inherit them, and because the command line
replaces Python's streams by its own on descriptors 1 and 2.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import IO
from unittest import mock

from grader import cli
from grader.classroom.workers import grading_plan
from grader.cli import terminal
from grader.system import resources
from grader.system.confine.launcher import launcher, machine

_CACHED_VARIABLES = ("HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME")
_CACHES = (resources.version, launcher, machine, grading_plan)
"""Functions that read one of these variables, or start a program that they lead to, once in the life of a process."""


def run_in_process(words: Sequence[str], *, cwd: Path, variables: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Return exit code, stdout and stderr of `grade` with these words, in this folder, with only these variables.

    What the command line does not turn into an exit code is raised.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _redirected(out, err), _started(words, cwd, variables):
            code = _exit_code()
            sys.stdout.flush()
            sys.stderr.flush()
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def _exit_code() -> int:
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("grader.cli.main ends with SystemExit")


@contextmanager
def _started(words: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Set what a new process begins with, apart from its descriptors, and restore it at the end."""
    encoding = variables.get("PYTHONIOENCODING", "utf-8")
    thresholds = gc.get_threshold()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with ExitStack() as stack:
        stack.enter_context(_current_caches(variables))
        stack.enter_context(chdir(cwd))
        stack.enter_context(mock.patch.dict(os.environ, variables, clear=True))
        for owner, name, value in (
            (sys, "argv", ["grade", *words]),
            (sys, "stdin", stack.enter_context(Path(os.devnull).open(encoding="utf-8"))),
            (sys, "stdout", io.TextIOWrapper(io.FileIO(1, "wb", closefd=False), encoding=encoding)),
            (sys, "stderr", io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), encoding=encoding)),
            (tempfile, "tempdir", None),
            (terminal._Noting, "failed", False),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            gc.unfreeze()
            gc.set_threshold(*thresholds)
            gc.enable()


@contextmanager
def _redirected(out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Let descriptors 0 to 2 be /dev/null and these files until the end."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with Path(os.devnull).open("rb") as nothing, ExitStack() as stack:
        for number, file in enumerate((nothing, out, err)):
            before = os.dup(number)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
        yield


@contextmanager
def _current_caches(variables: Mapping[str, str]) -> Iterator[None]:
    """Let no cache know another value of a variable than the current one."""
    changed = any(variables.get(name) != os.environ.get(name) for name in _CACHED_VARIABLES)
    caches = _CACHES if changed else ()
    for cached in caches:
        cached.cache_clear()
    try:
        yield
    finally:
        for cached in caches:
            cached.cache_clear()
