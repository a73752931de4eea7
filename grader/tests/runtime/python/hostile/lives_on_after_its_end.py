"""Runs code when objects are deleted and when the process ends."""

import atexit
import sys
import weakref


def endless(*_):
    while True:
        pass


class Shelf(Shelf):
    __del__ = endless


atexit.register(endless)
sys.exitfunc = sys.excepthook = sys.unraisablehook = endless
weakref.finalize(Shelf, endless)
