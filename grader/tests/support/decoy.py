"""A parent for a grading that only notes: which signals reach it, what is changed of it or its
child from outside, what outlives its child.

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

from grader.system.orphans import adopt_orphans

_NO_SIGNAL_OF_OTHERS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
"""The first two nobody can note: then there are no notes, or they come too late."""


def main() -> None:
    """Run the command among our ears, then look who is left."""
    adopt_orphans()
    noted: list[str] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(signal.Signals(number).name)

    for number in signal.valid_signals() - _NO_SIGNAL_OF_OTHERS:
        with contextlib.suppress(OSError, ValueError):  # numbers that libc keeps for itself
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
    """What others may change of a process; of ours they have no reason to."""
    return {
        "priority": os.getpriority(os.PRIO_PROCESS, process),
        "scheduler": os.sched_getscheduler(process),
        "processors": sorted(os.sched_getaffinity(process)),
        "bytes in message queues": resource.prlimit(process, resource.RLIMIT_MSGQUEUE),
    }


def _end_survivors() -> list[str]:
    """End and bury what the command left, which is our child now, and what that leaves; a line for each."""
    found: list[str] = []
    while numbers := Path("/proc/thread-self/children").read_text(encoding="ascii").split():
        for number in map(int, numbers):
            found.append(Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace"))
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
    return found


if __name__ == "__main__":
    main()
