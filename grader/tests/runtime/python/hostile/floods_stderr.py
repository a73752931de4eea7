"""Writes to stderr for ever."""

import sys


class Shelf(Shelf):
    def usage(self):
        while True:
            sys.stderr.write("hostile " * 10_000)
