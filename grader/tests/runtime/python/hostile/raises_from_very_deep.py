"""Raises an error with a traceback of many thousand entries, and a cycle of causes."""

import sys


class Shelf(Shelf):
    def usage(self):
        sys.setrecursionlimit(60_000)


        def deeper(depth):
            if depth == 0:
                error = ValueError("deep")
                error.__cause__ = error.__context__ = error
                raise error
            deeper(depth - 1)


        deeper(50_000)
