"""Classes of submissions for the tests of whole batches, in any number: samples and mutants in C, or slow counters."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

from grader.assignment.samples import program_of, samples_in
from grader.classroom.store import open_store
from grader.core.record import Record
from grader.tests.support import counter_lab
from grader.tests.support.command import ROOT, SAMPLES, command, environment
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.covering import UNSTEADY
from grader.tests.support.mistakes import MISTAKES
from grader.tests.support.programs import changed

_UNSTEADY = ("hostile", *UNSTEADY)
"""Samples whose behaviour depends on time or on addresses: no two gradings of them agree."""


def made_class(folder: Path, count: int) -> Path:
    """Make a flat folder with `count` different submissions: labelled samples and programs with two mistakes, mixed."""
    folder.mkdir()
    source_name = "llm_memory.c"
    steady = (sample for sample in samples_in(SAMPLES, source_name) if not sample.name.startswith(_UNSTEADY))
    texts = list(dict.fromkeys([*(program_of(sample, source_name) for sample in steady), *_mutants()]))
    random.Random(3).shuffle(texts)
    for number, text in enumerate(texts[:count]):
        (folder / f"student_{number:03}.c").write_bytes(text)
    if len(texts) < count:
        raise ValueError(f"there are only {len(texts)} different programs")
    return folder


def made_counters(folder: Path, count: int) -> Path:
    """Make a flat folder with `count` different counters. A grading takes 0.3 s and little of a processor."""
    folder.mkdir()
    for number in range(count):
        source = f"# {number}\nsleep 0.06\n{BELOW if number % 3 else RIGHT}"
        (folder / f"student_{number:03}.sh").write_text(source, encoding="utf-8")
    return folder


def _mutants() -> Iterator[bytes]:
    """Yield the right program with each pair of known mistakes that can be combined."""
    for pair in combinations(MISTAKES.values(), 2):
        try:
            yield changed(*pair).encode()
        except ValueError:  # both change the same line
            continue


def start(folder: Path, store: Path, *options: str | Path) -> subprocess.Popen[bytes]:
    """Start `grade batch` in a process of its own, with its own folder for temporary files, by which it is found.

    With `--lab counter` it is one that knows the counter.
    """
    program = counter_lab.command if "counter" in options else command
    (store.parent / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        program("batch", folder, "--store", store, *options),
        cwd=ROOT,
        env=environment(TMPDIR=str(store.parent / "tmp")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(store: Path) -> int:
    """Return the number of records in a store that other processes may be writing to; 0 when it does not exist yet."""
    if not store.exists():
        return 0
    try:
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.OperationalError:  # its tables do not exist yet
        return 0


def records(store: Path) -> dict[str, Record]:
    """Return the records of the only run, by submission; the run must be complete."""
    with open_store(store) as opened:
        (run,) = opened.runs()
        assert opened.pending(run) == []
        return {result.name: result.record for result in opened.results(run)}


def killed_and_resumed(folder: Path, store: Path, kills: int, *options: str | Path) -> list[int]:
    """Kill a batch `kills` times, each time a moment after a random number of records, then let it end.

    Returns the number of records after each kill.
    """
    chance = random.Random(11)
    seen = []
    for moment in sorted(chance.choices(range(len(list(folder.iterdir()))), k=kills)):
        process = start(folder, store, *options)
        while finished(store) < moment and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        process.communicate(timeout=60)
        seen.append(finished(store))
    start(folder, store, *options).communicate(timeout=3600)
    return seen


def children(pid: int) -> set[int]:
    """Return the process ids of the children of a process."""
    found = (path.read_text(encoding="ascii").split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return {int(number) for numbers in found for number in numbers}


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until `true` returns True, for at most `seconds`; the caller checks the result itself."""
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
