"""Writes to stdout for ever."""

import sys


class Shelf(Shelf):
    def usage(self):
        while True:
            sys.stdout.write("hostile " * 10_000)
