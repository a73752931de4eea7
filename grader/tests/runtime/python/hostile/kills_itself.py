"""Kills its own process, as the kernel does when memory runs out."""

import signal


class Shelf(Shelf):
    def usage(self):
        signal.raise_signal(signal.SIGKILL)
