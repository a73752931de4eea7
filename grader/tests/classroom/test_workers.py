"""Whatever a call does, it has an end: by its deadline, or when all end, and with everything that it started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.classroom.workers import CallTimeout, ProcessDied, ProcessPool
from grader.system.folders import private_folder
from grader.system.process_tree import INTERRUPTS, adopt_orphans
from grader.tests.support.classes import until


def begin(folder: str) -> None:
    """Leave a mark that a call has begun."""
    Path(folder, f"begun-{os.getpid()}").touch()


def begun(folder: Path, count: int) -> None:
    """Wait for so many marks."""
    until(lambda: len(list(folder.glob("begun-*"))) >= count, 120)


def endless(folder: str) -> None:
    """In Python: it ignores what asks it to end."""
    begin(folder)
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def deaf_in_c(folder: str) -> None:
    """In C: no other thread of the process runs, and no signal arrives."""
    begin(folder)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    ctypes.PyDLL(None).sleep(600)


def stopped(folder: str) -> None:
    """By a signal that nobody can catch."""
    begin(folder)
    os.kill(os.getpid(), signal.SIGSTOP)


def parent_of_many(folder: str) -> None:
    """With a workspace, a child that ignores signals, and an orphan in a session of its own."""
    workspace = private_folder(None)
    (workspace.__enter__() / "deep").mkdir()
    adopt_orphans()
    program = f"trap '' TERM INT HUP; setsid sh -c 'echo $$ > {folder}/orphan; exec sleep 600' & exec sleep 600"
    child = subprocess.Popen(["sh", "-c", program])
    Path(folder, "child").write_text(str(child.pid), encoding="ascii")
    while not Path(folder, "orphan").exists() or not Path(folder, "orphan").read_text(encoding="ascii"):
        time.sleep(0.01)
    deaf_in_c(folder)


def alive(pid: int) -> bool:
    """Is it more than an entry in a table?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_calls_that_do_not_end_are_ended_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their deadline, in the parent, with children, orphans of another session and folders; others go on there."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with ProcessPool(4, 600) as pool:
        late = [pool.submit(call, str(tmp_path)) for call in (endless, deaf_in_c, stopped, parent_of_many)]
        others = [pool.submit(os.getpid) for _ in range(2)]
        begun(tmp_path, 4)
        for one in pool._places:  # as the thread does that looks at the clock
            one.wait_less(200)
        assert not any(one.done() for one in late)
        for one in pool._places:
            one.wait_less(401)

        assert [type(one.exception(timeout=120)) for one in late] == [CallTimeout] * 4
        assert all(other.result(timeout=120) for other in others)
    monkeypatch.undo()
    started = [int((tmp_path / name).read_text(encoding="ascii")) for name in ("child", "orphan")]
    until(lambda: not any(map(alive, started)), 5)

    assert [pid for pid in started if alive(pid)] == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("call", [endless, deaf_in_c, stopped])
def test_an_interrupt_waits_for_nobody(tmp_path: Path, call: Callable[[str], None]) -> None:
    """Also where the calls never end."""
    pool = ProcessPool(2, 600)
    futures = [pool.submit(call, str(tmp_path)) for _ in range(2)]
    begun(tmp_path, 2)
    pool.__exit__(KeyboardInterrupt)

    assert [type(future.exception(timeout=1)) for future in futures] == [ProcessDied, ProcessDied]


def refuse() -> None:
    """A call that raises."""
    raise ValueError("no")


def test_a_call_raises_what_it_raises() -> None:
    """Also in the process of before, which lives on."""
    with ProcessPool(1) as pool:
        first = pool.submit(os.getpid).result(timeout=60)
        with pytest.raises(ValueError, match="no"):
            pool.submit(refuse).result(timeout=60)

        assert pool.submit(os.getpid).result(timeout=60) == first
