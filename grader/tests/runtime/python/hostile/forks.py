"""Forks, and lets the child go on as a second program."""

import os
import pty

for fork in (os.fork, os.forkpty, lambda: pty.fork()[0]):
    try:
        if fork() == 0:
            while True:
                pass
    except BaseException:
        pass
