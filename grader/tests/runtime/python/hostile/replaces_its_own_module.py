"""Puts an object in its place in sys.modules whose attributes never end."""

import sys


class Module:
    def __getattr__(self, name):
        while True:
            pass


sys.modules["shelf"] = sys.modules[__name__] = Module()
