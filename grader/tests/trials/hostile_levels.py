"""`python -m grader.tests.trials.hostile_levels [--only TEXT]... [NAME]...`: hostile samples at all levels.

Each sample is graded at each level of protection, as root and as an ordinary user. What must hold: no sample gets more
points than its label says, an accepted one gets all, no report shows anything of a hidden case, no sample ends the
grader, and each takes at most 10 s of a usual machine, CPU and wall time, and 500 MB of the grader and its children
together. A machine with less protection is this one under a filter that refuses the system calls of the missing
protection. The trial needs root, and `bwrap` for the last two machines. It prints a line for each machine (NAME is one
of them) and for each sample that does not hold; the exit code is 1 when there is one. It takes about 5 minutes for each
machine; `--only` selects the samples whose path contains TEXT.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grader.assignment.case_files import select_cases
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.pipeline import grade
from grader.runtime.protocol import GradingOptions
from grader.system import sandbox
from grader.tests.support.command import ROOT, SAMPLES, environment
from grader.tests.support.hostile_batch import LAST, Hostile, suite
from grader.tests.support.machines import MACHINES, Machine, become
from grader.tests.support.programs import seconds_here
from grader.tests.test_hostile_suite import told_hidden

_MOST_SECONDS, _MOST_MEMORY = 10.0, 500 << 20
_LOOK_SECONDS = 0.05


def main() -> int:
    """Try the selected machines; return 0 when all samples hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(one.name for one in MACHINES)])
    asked = parser.parse_args()
    if asked.here:
        return _here(asked.only)
    chosen = [one for one in MACHINES if not asked.names or one.name in asked.names]
    wrong = [problem for one in chosen for problem in _on(one, asked.only)]
    sys.stdout.write("\n".join(wrong or ["all of them hold"]) + "\n")
    return int(bool(wrong))


def _on(machine: Machine, only: Sequence[str]) -> Iterator[str]:
    """Yield the problems on such a machine."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = os.environ["PATH"]
        command = [sys.executable, "-m", "grader.tests.trials.hostile_levels", "--here"]
        done = subprocess.run(
            [*command, *(word for text in only for word in ("--only", text))],
            cwd=ROOT,
            env=environment(HOME=folder, XDG_CACHE_HOME=f"{folder}/cache", TMPDIR=folder, PATH=path),
            preexec_fn=lambda: become(machine),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or not said:
        yield f"{machine.name}: ended with {done.returncode}"
        return
    level, *results = said
    if level != machine.level:
        yield f"{machine.name}: this machine gives {level}, not {machine.level}"
        return
    worst = {key: max(results, key=lambda one: float(one[key])) for key in ("cpu", "wall", "bytes")}
    words = [
        f"{one['name']} {one['cpu']:.1f} s, {one['wall']:.1f} s, {one['bytes'] >> 20} MB" for one in worst.values()
    ]
    sys.stdout.write(f"{machine.name}: {len(results)} samples; most: {'; '.join(words)}\n")
    sys.stdout.flush()
    for one in results:
        yield from (f"{machine.name}: {one['name']}: {problem}" for problem in one["problems"])


def _here(only: Sequence[str]) -> int:
    """Grade the samples on this machine as it is; print the level, then a line for each sample."""
    folders = [*(one.folder for one in suite()), *sorted(SAMPLES.glob("accepted/*"))]
    hostile = {one.folder: one for one in suite()}
    _say(sandbox.protection().level)
    _graded(LAST, None)  # one-time work is done here, so that it counts for no sample
    for folder in dict.fromkeys(folders):
        if not only or any(text in str(folder) for text in only):
            _say(_weighed(folder, hostile.get(folder)))
    return 0


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _weighed(folder: Path, label: Hostile | None) -> dict[str, object]:
    """Grade one sample in a process of its own; return its cost and its problems."""
    reader, writer = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):  # on any exception it exits without output
            os.write(writer, json.dumps(_graded(folder, label)).encode())
            os._exit(0)
        os._exit(1)
    os.close(writer)
    most = 0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        most = max(most, sum(_memory(process) for process in _tree(child)))
        time.sleep(_LOOK_SECONDS)
    with os.fdopen(reader, "rb") as said:
        text = said.read()
    silent = {"problems": [f"the grader ended with status {status}"], "cpu": 0.0, "wall": time.monotonic() - started}
    found: dict[str, Any] = json.loads(text) if status == 0 else silent
    if max(found["wall"], found["cpu"]) > seconds_here(_MOST_SECONDS):
        found["problems"].append(f"{found['cpu']:.1f} s of the processors, {found['wall']:.1f} s by the clock")
    if most > _MOST_MEMORY:
        found["problems"].append(f"{most >> 20} MB")
    return {**found, "name": f"{folder.parent.name}/{folder.name}", "bytes": most}


def _graded(folder: Path, label: Hostile | None) -> dict[str, object]:
    """Grade one sample in this process; return the time that it took, and its problems."""
    chosen = lab()
    cases = select_cases(chosen, seed=1).cases
    started, before = time.monotonic(), _cpu_seconds()
    record, trouble = None, ""
    try:
        record = grade(folder, chosen, cases, GradingOptions(seed=1))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
        trouble = f"{type(error).__name__}: {str(error)[:300]}"
    wall, cpu = time.monotonic() - started, _cpu_seconds() - before
    problems = list(_problems(record, folder, label)) if record is not None else [trouble]
    return {"problems": problems, "cpu": cpu, "wall": wall}


def _cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _problems(record: Record, folder: Path, label: Hostile | None) -> Iterator[str]:
    if record.score is None or (label is not None and record.score > label.most):
        yield f"{record.score} points"
    if folder.parent.name == Verdict.ACCEPTED and (record.score != record.max_score or record.findings):
        yield f"{record.verdict}, {record.score} points, {[finding.message for finding in record.findings][:3]}"
    if told := told_hidden(record):
        yield f"tells of hidden cases: {sorted(told)[:5]}"


def _tree(process: int) -> Iterator[int]:
    yield process
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _tree(int(child))


def _memory(process: int) -> int:
    """Return the proportional memory of a process in bytes; all its resident memory where that cannot be read."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    with suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
