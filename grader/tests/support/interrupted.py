"""Gradings in processes of their own that are killed or interrupted: how they start, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from jsonschema_rs import Draft202012Validator

from grader.core import record
from grader.core.record import Record, from_json
from grader.tests.support.command import ROOT


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """Make a folder for reports and temporary files, in which another user may work too."""
    folder = Path(tempfile.mkdtemp(prefix="interrupted-"))
    folder.chmod(0o755)
    (folder / "tmp").mkdir(mode=0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@cache
def validator() -> Draft202012Validator:
    """What the published schema demands."""
    return Draft202012Validator(record.schema())


def start(folder: Path, submission: Path) -> subprocess.Popen[bytes]:
    """`grade run --format json --output F` in a process of its own."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "grader",
            "run",
            str(submission),
            "--case",
            "append/*",
            "--format",
            "json",
            "--output",
            str(folder / "record.json"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def found(folder: Path) -> Record | None:
    """The record that is there, which must be whole and valid."""
    path = folder / "record.json"
    if not path.exists():
        return None
    text = path.read_bytes()
    validator().validate(json.loads(text))
    return from_json(text)


def survivors(folder: Path) -> list[int]:
    """Processes that were started below this folder and still live."""
    left = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                left.append(int(entry.name))
    return left


def wait_for_silence(folder: Path, seconds: float) -> list[int]:
    """Give what is left a moment to end by itself; kill and return what does not."""
    deadline = time.monotonic() + seconds
    while (left := survivors(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return left


def how_long(folder: Path, submission: Path) -> float:
    """The time of one grading on this machine now."""
    started = time.monotonic()
    process = start(folder, submission)
    process.communicate(timeout=60)
    (folder / "record.json").unlink()
    return time.monotonic() - started


def killed(folder: Path, submission: Path, moments: Iterable[float]) -> list[bool | None]:
    """Kill a grading after each of these times, in s.

    Returns whether the record that is there then is complete; None where there is none.
    """
    seen: list[bool | None] = []
    for seconds in moments:
        process = start(folder, submission)
        time.sleep(seconds)
        process.kill()
        process.communicate(timeout=20)
        record_there = found(folder)
        seen.append(None if record_there is None else record_there.complete)
        (folder / "record.json").unlink(missing_ok=True)
    return seen


def interrupted(folder: Path, submission: Path, number: signal.Signals, seconds: float, *, working: bool) -> int:
    """Send a signal to a grading after `seconds`, counted from where it is `working`, and return the exit code.

    It is working as soon as it has made a folder for the submission's programs.
    """
    process = start(folder, submission)
    deadline = time.monotonic() + 60
    while working and not list((folder / "tmp").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(number)
    process.communicate(timeout=30)
    found(folder)
    (folder / "record.json").unlink(missing_ok=True)
    return process.returncode
