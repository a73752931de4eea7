"""`python -m grader.tests.trials.gradescope_life [ROOT]`: the autograder in a bare Debian, from set-up to results.

It needs root and debootstrap, and takes 3 minutes. It makes a minimal root of this machine's own release, unpacks the
zip in it, runs `setup.sh` with network, and then grades submissions, each with the network really off and half a
processor. It prints times, memory and sizes, and which conditions hold. An existing ROOT is reused. The ordinary tests
do the same with a few cases and without an image (test_gradescope.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.assignment.samples import label_of
from grader.tests.support.autograder import Autograder, unpacked
from grader.tests.support.command import ROOT, SAMPLES, environment, grade

_LENT = ("resolv.conf", "hosts", "pip.conf", "apt", "ssl/certs")
"""Files of /etc that are needed to reach the sources of packages."""
_SETUP = ("bash", "/autograder/source/setup.sh")
_MOST_MEMORY = 768 << 10
_IN_ROOT = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && cd "$0" && exec chroot "$0" "$@"'
_CONNECT = "import socket; socket.create_connection(('127.0.0.1', 9), timeout=5)"
"""No process listens there: the connection is refused with a network, and unreachable without one."""
_STUDENT = 61_184
"""The first of the user ids that student code runs with."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one program with all its children."""

    code: int
    wall: float
    cpu: float
    memory: int
    """In kB, all its processes together: the highest value that was measured."""
    out: str

    @property
    def fits(self) -> bool:
        """Whether the memory fits into Gradescope's smallest container."""
        return self.memory < _MOST_MEMORY

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, {self.cpu:.1f} s of CPU, {self.memory >> 10} MB"


def main(place: Path | None = None) -> int:
    """Run the trial and print the results; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="gradescope-life-") as temporary:
        root = place or Path(temporary) / "root"
        if not root.is_dir():
            _say(f"a minimal root in {_bootstrap(root):.0f} s")
        shutil.rmtree(root / "autograder", ignore_errors=True)
        bundle = Path(temporary) / "bundle"
        packed = grade("pack", "gradescope", bundle)
        assert packed.code == 0, packed.all
        archive = (bundle / "gradescope.zip").read_bytes()
        _say(f"gradescope.zip: {len(archive) / 1000:.0f} kB")
        box = unpacked(archive, root / "autograder")
        loud = _run(root, *_SETUP).code != 0
        _say(f"{'holds ' if loud else 'BROKEN'}  setup.sh fails without network")
        done = _run(root, *_SETUP, network=True)
        _say(f"setup.sh: {done}, exit code {done.code}")
        if done.code != 0:
            _say(done.out)
            return 1
        held = [loud]
        for part in (_after_setup, _samples, _closed, _kills):
            for line, right in part(root, box):
                _say(f"{'holds ' if right else 'BROKEN'}  {line}")
                held.append(right)
    return 0 if all(held) else 1


def _after_setup(root: Path, box: Autograder) -> Iterator[tuple[str, bool]]:
    python = "/autograder/source/.venv/bin/python"
    installed = sum(path.stat().st_size for path in (box.source / ".venv").rglob("*") if path.is_file())
    yield f"the environment: {installed / 1e6:.0f} MB, no mypy", not list(box.source.glob(".venv/bin/mypy"))
    ends = [_run(root, python, "-c", _CONNECT, network=network).out for network in (True, False)]
    yield "the network is off", "refused" in ends[0] and "unreachable" in ends[1]


def _closed(root: Path, box: Autograder) -> Iterator[tuple[str, bool]]:
    """Check that a student's user, who may read other files, cannot read the grader's, even without a sandbox."""
    user = ("setpriv", "--reuid", str(_STUDENT), "--regid", str(_STUDENT), "--clear-groups", "test", "-r")
    ours = ("source", "results", "submission", box.results.relative_to(box.place), "submission_metadata.json")
    ends = [_run(root, *user, path).code for path in ("/etc/passwd", *(f"/autograder/{one}" for one in ours))]
    yield "what is ours is closed to student code", ends == [0, 1, 1, 1, 1, 1]


_SAMPLES = (
    *("accepted/yoda_crlf", "wrong_answer/no_copy_on_write", "memory_error/destroy_frees_pool"),
    *("compile_error/sign_compare", "compile_error/hostile_includes_itself_without_end"),
    *("time_limit_exceeded/free_walk_spins_on_removed_node", "time_limit_exceeded/lookup_never_leaves_ring"),
    *("memory_leak/hostile_allocates_until_it_gets_nothing", "wrong_answer/hostile_forks_until_it_may_not"),
    *("wrong_answer/hostile_reads_files_by_system_calls", "wrong_answer/hostile_prints_forged_results_everywhere"),
)
"""One of each kind, and those that take the most memory or try to read or write other files."""


def _samples(root: Path, box: Autograder) -> Iterator[tuple[str, bool]]:
    """Check that each sample gets the points of its label on half a processor, in results that Gradescope accepts."""
    for name in _SAMPLES:
        least, most = _keeps(name)
        done, results = _graded(root, box, SAMPLES / name)
        right = least <= results["score"] <= most and results["extra_data"]["verdict"] == name.partition("/")[0]
        closed = "HOSTILE-GOT" not in results["output"]
        yield f"{name}: {results['score']} points; {done}", right and closed and done.fits
    done, results = _graded(root, box, SAMPLES / _SAMPLES[0], ROOT / "pyproject.toml", inside="homework/src")
    yield f"the first in a repository: {results['score']} points; {done}", results["score"] == 100 and done.fits
    done, results = _graded(root, box)
    yield f"nothing: {results['score']} points; {done}", "there is no" in results["output"] and done.fits


def _keeps(sample: str) -> tuple[int, int]:
    """Return the least and the most points that a sample may have."""
    least, most = label_of(SAMPLES / sample).get("keeps", (100, 100))
    return int(least), int(most)


def _graded(root: Path, box: Autograder, *sources: Path, inside: str = ".") -> tuple[Cost, dict[str, Any]]:
    box.hand_in(*sources, inside=inside)
    with _rival():
        done = _run(root, "/autograder/run_autograder", around=("taskset", "--cpu-list", "0"))
    assert done.code == 0, done.out
    return done, box.read()


@contextlib.contextmanager
def _rival() -> Iterator[None]:
    """Run a process that keeps the first processor busy: any other process there gets half of it."""
    rival = subprocess.Popen(["taskset", "--cpu-list", "0", sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        rival.kill()
        rival.wait()


def _kills(root: Path, box: Autograder) -> Iterator[tuple[str, bool]]:
    """Kill the grading as Gradescope's time limit does, later each time until it ends itself; results must be whole."""
    seen: list[int | None] = []
    ended = False
    for moment in range(1, 100):
        box.hand_in(SAMPLES / _SAMPLES[1])
        done = _run(root, "timeout", "--signal=KILL", f"{moment / 5}", "/autograder/run_autograder")
        if box.results.exists():
            seen.append(box.read().get("score"))
        if ended := done.code == 0:
            break
    points = [score for score in seen if score is not None]
    least, _ = _keeps(_SAMPLES[1])
    yield f"killed after 0.2 s, 0.4 s, ...: points {seen}", ended and len(points) > 1 and min(points) >= least


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _bootstrap(root: Path) -> float:
    """Make a minimal root from the source of this machine's own packages; return the seconds that it took."""
    started = time.monotonic()
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    targets = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, check=True)
    assert release is not None
    command = ["debootstrap", "--variant=minbase", release[1], root, targets.stdout.decode().splitlines()[0]]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    for name in _LENT:
        there = Path("/etc") / name
        if there.is_dir():
            shutil.rmtree(root / "etc" / name, ignore_errors=True)
            shutil.copytree(there, root / "etc" / name, symlinks=True)
        elif there.exists():
            shutil.copy(there, root / "etc" / name)
    certificates = Path("/usr/local/share/ca-certificates")
    if certificates.is_dir():
        shutil.copytree(certificates, root / certificates.relative_to("/"), dirs_exist_ok=True)
    return time.monotonic() - started


def _run(root: Path, *command: str, network: bool = False, around: Sequence[str] = ()) -> Cost:
    """Run a command in the root, whose mounts end with the command."""
    around = [*around, "unshare", "--mount", *([] if network else ["--net"]), "sh", "-c", _IN_ROOT, str(root)]
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*around, *command],
            env={**environment(), "HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        with _looking_at(process.pid) as seen:
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        out = said.read().decode(errors="replace")
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(process.returncode, time.monotonic() - started, cpu, max(seen, default=0), out)


@contextlib.contextmanager
def _looking_at(pid: int) -> Iterator[list[int]]:
    """Yield a list that grows by the memory of a process and its descendants, in kB; shared memory counts once."""
    seen: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            seen.append(sum(map(_memory, _family(pid))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _family(pid: int) -> list[int]:
    family = [pid]
    for one in family:
        with contextlib.suppress(OSError):
            family += map(int, Path(f"/proc/{one}/task/{one}/children").read_text(encoding="utf-8").split())
    return family


def _memory(pid: int) -> int:
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8"), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
