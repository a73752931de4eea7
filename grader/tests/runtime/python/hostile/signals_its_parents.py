"""Signals its parent, its group, and everybody."""

import os
import signal

for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGPROF):
    for attempt in (
        lambda number=number: os.kill(os.getppid(), number),
        lambda number=number: os.killpg(os.getpgid(os.getppid()), number),
        lambda number=number: os.kill(0, number),
        lambda number=number: os.kill(-1, number),
        lambda number=number: signal.pthread_kill(1, number),
        lambda number=number: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), number),
    ):
        try:
            attempt()
        except BaseException:
            pass
