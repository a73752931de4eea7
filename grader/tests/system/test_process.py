"""Programs that we start: they end, what they leave running ends, and what they say is bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from grader.core.errors import Abandoned, CannotStart
from grader.system import process
from grader.system.process import Command, Completed, Patience

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


def test_a_program_ends_when_nobody_wants_its_result(tmp_path: Path) -> None:
    """Long before its time is over, with what it started."""
    file = tmp_path / "pids"

    with pytest.raises(Abandoned):
        sh(f"sleep 60 & echo $! >{file}; wait", limits=Patience(wall_seconds=60, unwanted=file.exists))
    time.sleep(0.05)  # the file may have been empty
    assert all(ends(int(pid)) for pid in file.read_text(encoding="utf-8").split())


def test_exit_codes() -> None:
    """A program's own end is told as it is."""
    done = sh("exit 3")

    assert (done.exit_code, done.signal, done.timed_out, done.succeeded) == (3, None, False, False)
    assert sh("exit 0").succeeded


def test_signals() -> None:
    """A crash has a signal and no exit code."""
    done = sh("kill -SEGV $$")

    assert (done.exit_code, done.signal, done.timed_out) == (None, signal.SIGSEGV, False)


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


def test_what_is_left_running_ends_with_the_program() -> None:
    """Also after a normal end; the pipes that it keeps open delay nothing."""
    done = sh("sleep 1000 & echo $!; exit 0")

    assert done.succeeded
    assert ends(int(done.stdout))


def test_what_leaves_the_session_ends_too() -> None:
    """A daemon would work on while the next submission is graded."""
    done = sh("setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.2; exit 0")

    assert done.succeeded
    assert ends(int(done.stdout))


def test_what_leaves_session_and_environment_ends_too() -> None:
    """Nothing tells then whose child it was; all orphans that came meanwhile end."""
    done = sh("setsid env -i setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.3; exit 0")

    assert done.succeeded
    assert ends(int(done.stdout))


def test_a_fork_of_us_ends_what_its_own_programs_leave() -> None:
    """Its orphans are its own, although we have adopted ours before it was born: nobody else would bury them."""
    sh("exit 0")
    child = os.fork()
    if child == 0:
        done = sh("setsid sh -c 'exec sleep 1000' & sleep 0.2; exit 0")
        os._exit(0 if done.succeeded else 1)
    _, status = os.waitpid(child, 0)
    left = [one for task in Path("/proc/self/task").iterdir() for one in (task / "children").read_text().split()]

    assert status == 0
    assert [one for one in left if b"sleep\0001000" in Path(f"/proc/{one}/cmdline").read_bytes()] == []


def test_children_of_somebody_else_go_on() -> None:
    """In our session or one of their own; and another program of ours, with what it has left to us so far."""
    others = [subprocess.Popen(["sleep", "60"], start_new_session=own) for own in (False, True)]
    slow = threading.Thread(target=lambda: slow_ones.append(sh("sh -c '(sleep 1; echo late) &'; sleep 2; echo on")))
    slow_ones: list[Completed] = []
    slow.start()
    time.sleep(0.2)
    sh("exit 0")
    going = [one.poll() for one in others]
    for one in others:
        one.kill()
        one.wait()
    slow.join()

    assert going == [None, None]
    assert slow_ones[0].stdout == b"late\non\n"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("after", ["wait", "sleep 0.1; exit 0"])
def test_endless_output_cannot_outlive_the_limit(after: str) -> None:
    """There is always something to read, from the program itself or from what it left behind."""
    done = sh("for i in 1 2 3 4; do yes & yes >&2 & done; " + after, limits=Patience(wall_seconds=0.5))

    assert done.timed_out == (after == "wait")
    assert len(done.stdout) <= 1 << 20
    assert "stdout" in done.cut or after != "wait"


def test_a_program_that_closes_its_output_is_waited_for() -> None:
    """The end of a pipe is not the end of the program."""
    assert sh("exec >&- 2>&-; sleep 0.2; exit 3").exit_code == 3


def test_output_is_bounded_and_says_so() -> None:
    """What is too much is read and thrown away, so that the program goes on."""
    script = "head -c 300000 /dev/zero; echo end >&2"
    done = process.run(["sh", "-c", script], cwd=Path("/"), limits=SHORT, environment=PLACES, most_output=1000)

    assert done.succeeded
    assert done.stdout == bytes(1000)
    assert done.stderr == b"end\n"
    assert done.cut == {"stdout"}


def test_channels_are_bounded_and_say_so() -> None:
    """An extra pipe has a limit of its own."""
    command: Command = lambda ends: ["sh", "-c", f"head -c 5000 /dev/zero >/dev/fd/{ends[0]}"]  # noqa: E731
    done = process.run(command, cwd=Path("/"), limits=SHORT, environment=PLACES, channels=1, most_channel=100)

    assert done.channels == (bytes(100),)
    assert done.cut == {"channel 0"}


def test_much_goes_both_ways_at_once() -> None:
    """Neither side waits for the other for ever."""
    data = os.urandom(8 << 20)
    done = piped("cat <{0} >{1}; cat >&2 <{0}; echo done", data, channels=1)

    assert done.channels == (data,)
    assert done.stdout == b"done\n"


def test_several_feeds_and_channels_keep_their_order() -> None:
    """Feeds come first, then channels, each in the order asked for."""
    done = piped("cat <{0} >{3}; cat <{1} >{2}", b"first", b"second", channels=2)

    assert done.channels == (b"second", b"first")


@pytest.mark.parametrize("script", ["exit 0", "cat {0} | head -c 10 >/dev/null", "head -c 10 <{0} >/dev/null; exit 0"])
def test_a_feed_that_nobody_reads(script: str) -> None:
    """The program may end before it is through, or before it begins."""
    assert piped(script, bytes(4 << 20)).succeeded


def test_an_empty_feed_ends_at_once() -> None:
    """The reader sees the end of the file."""
    assert piped("cat <{0}; echo end", b"").stdout == b"end\n"


def test_the_environment_is_only_what_we_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of ours reaches a student's program."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    done = process.run(["/usr/bin/env"], cwd=Path("/"), limits=SHORT, environment={"A": "1"})

    names = {line.split(b"=")[0] for line in done.stdout.splitlines()}

    assert names == {b"A"}


def test_descriptors_of_ours_are_closed_there(tmp_path: Path) -> None:
    """Not even one that is marked as to be inherited, and there is nothing to read on stdin."""
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        done = sh("for fd in /proc/$$/fd/*; do readlink $fd; done; cat")
    targets = done.stdout.decode().split()

    assert [target.partition(":")[0] for target in targets] == ["/dev/null", "pipe", "pipe"]


def test_no_descriptor_is_lost(tmp_path: Path) -> None:
    """Neither after a normal run, nor after a time limit, nor when there is no such program."""
    sh("exit 0")
    before = descriptors()
    piped("cat <{0} >{1}", b"x", channels=1)
    sh("sleep 1000", limits=Patience(wall_seconds=0.05))
    with pytest.raises(CannotStart, match="no-such-program"):
        process.run(["no-such-program"], cwd=tmp_path, limits=SHORT, environment=PLACES, feeds=[b"x"], channels=1)

    assert descriptors() == before


def test_it_has_a_session_of_its_own() -> None:
    """No terminal of ours listens to it."""
    pid, session = sh("cut -d ' ' -f 1,6 /proc/$$/stat").stdout.split()

    assert pid == session


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


@pytest.mark.parametrize(("counts", "ended"), [(True, True), (False, False)])
def test_time_in_which_the_kernel_makes_it_wait(tmp_path: Path, *, counts: bool, ended: bool) -> None:
    """The parent after vfork is in state D until its child ends: such time counts only where that is requested."""
    source, program = tmp_path / "waits.c", tmp_path / "waits"
    source.write_text("#include <unistd.h>\nint main(void) { if (vfork() == 0) { sleep(2); _exit(0); } return 0; }\n")
    subprocess.run(["gcc", "-w", source, "-o", program], check=True)
    limits = Patience(silent_seconds=0.5, silent_start_seconds=0.5, own_seconds=1.0, blocked_counts=counts)
    done = process.run([str(program)], cwd=tmp_path, limits=limits, environment={})

    assert (done.slow, done.silent, done.succeeded) == (ended, False, not ended)
    assert done.cpu_seconds < 0.5
