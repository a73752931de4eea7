"""Raises an error in whatever the harness calls, by a profiler."""

import sys


def profiler(frame, event, argument):
    raise ValueError("profiled")


class Shelf(Shelf):
    def usage(self):
        sys.setprofile(profiler)
