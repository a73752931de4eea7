"""A Dask scheduler that hears nothing and says nothing keeps no batch from ending."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from grader.tests.support.command import ROOT

_SILENT = """import os, signal, subprocess, sys, time
from grader.classroom.dask_cluster import cluster
from grader.tests.support.pretended import task
from grader.classroom.workers import grade
words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1"]
scheduler = subprocess.Popen([*words, "--scheduler-file", sys.argv[1]], stderr=subprocess.DEVNULL)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
import json
address = json.load(open(sys.argv[1]))["address"].removeprefix("tcp://")
try:
    with cluster(address, print) as executor:
        executor.submit(grade, task())
        scheduler.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        started = time.monotonic()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print(time.monotonic() - started)
scheduler.kill()
"""


def test_a_scheduler_that_does_not_answer_keeps_nobody(tmp_path: Path) -> None:
    """From Ctrl-C it is 3 s."""
    words = [sys.executable, "-c", _SILENT, str(tmp_path / "scheduler.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) < 3
