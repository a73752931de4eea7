"""Starts processes in all ways of the standard library."""

import asyncio
import multiprocessing
import os
import subprocess

for attempt in (
    lambda: subprocess.Popen(["sleep", "100"]),
    lambda: os.posix_spawn("/bin/sleep", ["sleep", "100"], {}),
    lambda: os.system("sleep 100 &"),
    lambda: os.popen("sleep 100 &"),
    lambda: multiprocessing.Process(target=print).start(),
    lambda: asyncio.run(asyncio.create_subprocess_exec("sleep", "100")),
    lambda: subprocess._fork_exec(
        [b"sleep", b"100"], [b"/bin/sleep"], True, (), None, None,
        -1, -1, -1, -1, -1, -1, -1, -1, False, False, -1, None, None, None, -1, None, False,
    ),
    lambda: subprocess._posixsubprocess.fork_exec,
):
    try:
        attempt()
    except BaseException:
        pass
