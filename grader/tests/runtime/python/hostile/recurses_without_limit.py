"""Raises the limit of recursion, and recurses in Python and in C."""

import sys


class Shelf(Shelf):
    def usage(self):
        sys.setrecursionlimit(10**9)
        value = []
        for _ in range(10**6):
            value = [value]
        repr(value)
        return self.usage()
