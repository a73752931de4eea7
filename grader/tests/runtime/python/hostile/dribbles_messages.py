"""Sends a message whenever its time is nearly up."""

import sys
import time


class Shelf(Shelf):
    def take(self, count):
        frame = sys._getframe(1)
        while "send" not in dir(frame.f_locals.get("self")):
            frame = frame.f_back
        while True:
            time.sleep(0.3)
            frame.f_locals["self"].send(b"R", b"")
