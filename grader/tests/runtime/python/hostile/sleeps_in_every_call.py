"""Sleeps nearly as long as a call may take, in every call."""

import time


def slow(name, before):
    def call(self, *arguments):
        time.sleep(0.4)
        return before(self, *arguments)

    setattr(Shelf, name, call)


for name in ("take", "give", "label", "find"):
    slow(name, getattr(Shelf, name))
