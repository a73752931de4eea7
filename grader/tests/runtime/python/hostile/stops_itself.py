"""Stops itself, so that it neither computes nor ends."""

import signal


class Shelf(Shelf):
    def usage(self):
        signal.raise_signal(signal.SIGSTOP)
