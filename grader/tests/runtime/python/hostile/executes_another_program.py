"""Becomes another program that writes to all descriptors."""

import os

for path in ("/bin/sh", "/usr/bin/env", "/bin/busybox"):
    try:
        os.execv(path, ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo hostile >&$i; done; sleep 60"])
    except BaseException:
        pass
