"""A batch that is killed or interrupted loses nothing that was finished, and leaves nothing behind.

Most are batches of counters: what a worker grades is not what is tried here, and one of C is interrupted too.
`python -m grader.tests.trials.whole_class` does the same with 300 submissions in C, killed 20 times.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.workers import ProcessPool
from grader.tests.support.classes import (
    children,
    finished,
    killed_and_resumed,
    made_class,
    made_counters,
    records,
    start,
    until,
)
from grader.tests.support.interrupted import wait_for_silence
from grader.tests.support.same_result import same_result

_OPTIONS = ("--lab", "counter", "--jobs", "2")
_IN_C = ("--case", "append/copy_*", "--without-memory-checker", "--jobs", "2")
_COUNT = 14


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A small class of counters, in a place into which another user may look."""
    made = Path(tempfile.mkdtemp(prefix="killed-"))
    made.chmod(0o755)
    yield made_counters(made / "class", _COUNT)
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Path:
    """The store of a batch that ran to its end."""
    store = folder.parent / "undisturbed.sqlite"
    process = start(folder, store, *_OPTIONS)
    _, said = process.communicate(timeout=120)

    assert process.returncode == 1, said.decode()
    return store


def test_a_killed_batch_goes_on_to_the_same_store(folder: Path, undisturbed: Path) -> None:
    """SIGKILL at random moments: record by record what an undisturbed one has, and never less than before."""
    store = folder.parent / "killed.sqlite"
    seen = killed_and_resumed(folder, store, 3, *_OPTIONS)
    expected, made = records(undisturbed), records(store)

    assert seen == sorted(seen)
    assert any(0 < count < _COUNT for count in seen)
    assert made.keys() == expected.keys()
    assert [name for name in made if not same_result(made[name], expected[name])] == []
    assert wait_for_silence(folder.parent, 10) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_batch_keeps_what_is_finished(folder: Path, number: signal.Signals) -> None:
    """It ends with 130 and says how to go on; nothing of it is left, but for the store. One is a batch of C."""
    store = folder.parent / f"interrupted_{number}.sqlite"
    if number == signal.SIGINT:
        process = start(made_class(folder.parent / "C", _COUNT), store, *_IN_C)
    else:
        process = start(folder, store, *_OPTIONS)
    deadline = time.monotonic() + 60
    while not finished(store) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 130, said.decode()
    assert "the same command continues" in said.decode()
    assert "Traceback" not in said.decode()
    assert 1 <= finished(store) < _COUNT
    assert wait_for_silence(folder.parent, 5) == []
    assert list((folder.parent / "tmp").glob("grade-*")) == []


def test_ctrl_c_waits_for_no_worker_that_is_stopped(folder: Path) -> None:
    """They are killed, and their folders removed."""
    store = folder.parent / "stopped.sqlite"
    process = start(folder, store, *_OPTIONS)
    until(lambda: finished(store) > 0, 60)
    for worker in children(process.pid):
        if b"spawn_main" in Path(f"/proc/{worker}/cmdline").read_bytes():  # there is one of Python's own beside them
            os.kill(worker, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)

    assert (process.returncode, "the same command continues" in said.decode()) == (130, True)
    assert wait_for_silence(folder.parent, 5) == []
    assert list((folder.parent / "tmp").glob("grade-*")) == []


class Sent:
    """What ends its process when that has begun to send it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Said to be so many bytes."""
        threading.Thread(target=self.end, daemon=True).start()
        return len, (bytes(1 << 24),)

    def end(self) -> None:
        """Wait for the moment."""
        main = threading.main_thread().ident
        assert main is not None
        while sys._current_frames()[main].f_code.co_name != "_send":
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_worker_that_is_stopped_sends_no_half_record() -> None:
    """Nobody waits for the other half."""
    with ProcessPool(1) as pool:
        size: object = pool.submit(Sent).result(timeout=30)

    assert size == 1 << 24
