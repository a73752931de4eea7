"""Reads memory and environments of itself and its parents below /proc."""

import os

for process in ("self", os.getppid(), 1, "thread-self"):
    for name in ("mem", "environ", "maps", "cmdline", "fd/0", "root/etc/passwd", "cwd/play.pyc"):
        for read in (
            lambda path=f"/proc/{process}/{name}": open(path, "rb").read(),
            lambda path=f"/proc/{process}/{name}": os.readlink(path),
            lambda path=f"/proc/{process}/{name}": os.open(path, os.O_RDWR),
        ):
            try:
                print("hostile: it can be read", process, name, read()[:50])
            except BaseException:
                pass
