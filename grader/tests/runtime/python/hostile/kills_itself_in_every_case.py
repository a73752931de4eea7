"""Kills its own process in the first call of every case."""

import signal


class Shelf(Shelf):
    def __init__(self, count):
        signal.raise_signal(signal.SIGKILL)
