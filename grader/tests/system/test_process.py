"""Programs that we start: they end, what they leave running ends, and what they say is bounded."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from grader.core.errors import CannotStart
from grader.system import process
from grader.system.process import Command, Completed
from grader.system.process_tree import Patience

SHORT = Patience(wall_seconds=20)
PLACES = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def sh(script: str, *, limits: Patience = SHORT, cwd: Path = Path("/")) -> Completed:
    """Run a shell script."""
    return process.run(["sh", "-c", script], cwd=cwd, limits=limits, environment=PLACES)


def piped(script: str, *feeds: bytes, channels: int = 0) -> Completed:
    """Run a script in which {0}, {1}, ... are its extra descriptors."""
    command: Command = lambda ends: ["sh", "-c", script.format(*(f"/dev/fd/{end}" for end in ends))]  # noqa: E731
    return process.run(command, cwd=Path("/"), limits=SHORT, environment=PLACES, feeds=feeds, channels=channels)


def is_running(pid: int) -> bool:
    """Is there a process of that number that has not ended? One that nobody has waited for has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def ends(pid: int) -> bool:
    """Does that process end soon? A signal needs a moment."""
    deadline = time.monotonic() + 2
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    if is_running(pid):
        os.kill(pid, signal.SIGKILL)
        return False
    return True


def descriptors() -> int:
    """How many descriptors we have open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_it_prints_is_kept_apart() -> None:
    """Output and errors do not mix, and need not be text."""
    done = sh(r"printf 'a\000\377'; printf b >&2")

    assert (done.stdout, done.stderr, done.cut) == (b"a\x00\xff", b"b", frozenset())


def test_a_time_limit_ends_grandchildren_too() -> None:
    """What a program started in the background goes with it."""
    done = sh("sleep 1000 & echo $!; sleep 1000", limits=Patience(wall_seconds=0.3))

    assert done.timed_out
    assert done.signal == signal.SIGKILL
    assert ends(int(done.stdout))


def test_what_leaves_session_and_environment_ends_too() -> None:
    """Nothing tells then whose child it was; all orphans that came meanwhile end."""
    done = sh("setsid env -i setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.3; exit 0")

    assert done.succeeded
    assert ends(int(done.stdout))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("after", ["wait", "sleep 0.1; exit 0"])
def test_endless_output_cannot_outlive_the_limit(after: str) -> None:
    """There is always something to read, from the program itself or from what it left behind."""
    done = sh("for i in 1 2 3 4; do yes & yes >&2 & done; " + after, limits=Patience(wall_seconds=0.5))

    assert done.timed_out == (after == "wait")
    assert len(done.stdout) <= 1 << 20
    assert "stdout" in done.cut or after != "wait"


def test_output_is_bounded_and_says_so() -> None:
    """What is too much is read and thrown away, so that the program goes on."""
    script = "head -c 300000 /dev/zero; echo end >&2"
    done = process.run(["sh", "-c", script], cwd=Path("/"), limits=SHORT, environment=PLACES, most_output=1000)

    assert done.succeeded
    assert done.stdout == bytes(1000)
    assert done.stderr == b"end\n"
    assert done.cut == {"stdout"}


def test_several_feeds_and_channels_keep_their_order() -> None:
    """Feeds come first, then channels, each in the order asked for."""
    done = piped("cat <{0} >{3}; cat <{1} >{2}", b"first", b"second", channels=2)

    assert done.channels == (b"second", b"first")


@pytest.mark.parametrize("script", ["exit 0", "cat {0} | head -c 10 >/dev/null", "head -c 10 <{0} >/dev/null; exit 0"])
def test_a_feed_that_nobody_reads(script: str) -> None:
    """The program may end before it is through, or before it begins."""
    assert piped(script, bytes(4 << 20)).succeeded


def test_the_environment_is_only_what_we_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of ours reaches a student's program."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    done = process.run(["/usr/bin/env"], cwd=Path("/"), limits=SHORT, environment={"A": "1"})

    names = {line.split(b"=")[0] for line in done.stdout.splitlines()}

    assert names == {b"A"}


def test_no_descriptor_is_lost(tmp_path: Path) -> None:
    """Neither after a normal run, nor after a time limit, nor when there is no such program."""
    sh("exit 0")
    before = descriptors()
    piped("cat <{0} >{1}", b"x", channels=1)
    sh("sleep 1000", limits=Patience(wall_seconds=0.05))
    with pytest.raises(CannotStart, match="no-such-program"):
        process.run(["no-such-program"], cwd=tmp_path, limits=SHORT, environment=PLACES, feeds=[b"x"], channels=1)

    assert descriptors() == before


def test_an_interrupt_ends_the_program(tmp_path: Path) -> None:
    """Ctrl-C while we wait leaves nothing behind."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sh("echo $$ >pid; sleep 1000", cwd=tmp_path)
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)

    assert ends(int((tmp_path / "pid").read_text(encoding="utf-8")))
