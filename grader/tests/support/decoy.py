"""A parent process for a grading that only takes notes: of signals that it gets, of changes to it or its child from
outside, and of processes that outlive its child.

`python -m grader.tests.support.decoy NOTES COMMAND...` runs the command and writes its notes as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from grader.system.process_tree import adopt_orphans

_NO_SIGNAL_OF_OTHERS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
"""Signals that are not noted. The first two cannot be: then there are no notes, or they come too late."""


def main() -> None:
    """Run the command while noting all signals, then look for processes that are left."""
    adopt_orphans()
    noted: list[str] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(signal.Signals(number).name)

    for number in signal.valid_signals() - _NO_SIGNAL_OF_OTHERS:
        with contextlib.suppress(OSError, ValueError):  # numbers that libc reserves for itself
            signal.signal(number, note)
    before = _settings(0)
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    changed = {who: _settings(number) for who, number in {"the grader": child.pid, "its parent": 0}.items()}
    child.wait()
    notes = {
        "code": child.returncode,
        "signals": noted,
        "changed": [f"{who}: {now}, not {before}" for who, now in changed.items() if now != before],
        "survivors": _end_survivors(),
    }
    Path(sys.argv[1]).write_text(json.dumps(notes), encoding="utf-8")


def _settings(process: int) -> dict[str, object]:
    """The settings of a process that other processes can change. Nothing has a reason to change the grader's."""
    return {
        "priority": os.getpriority(os.PRIO_PROCESS, process),
        "scheduler": os.sched_getscheduler(process),
        "processors": sorted(os.sched_getaffinity(process)),
        "bytes in message queues": resource.prlimit(process, resource.RLIMIT_MSGQUEUE),
    }


def _end_survivors() -> list[str]:
    """Kill and reap the processes that the command left, which are children now, and their own; a line for each."""
    found: list[str] = []
    while numbers := Path("/proc/thread-self/children").read_text(encoding="ascii").split():
        for number in map(int, numbers):
            found.append(Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace"))
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
    return found


if __name__ == "__main__":
    main()
