"""Sends numbers in states of which each costs much to compare."""

import sys


class Shelf(Shelf):
    def __init__(self, count):
        super().__init__(count)
        self._send()

    def take(self, count):
        self._send()
        return super().take(count)

    def _send(self):
        frame = sys._getframe(1)
        while "report" not in frame.f_locals:
            frame = frame.f_back
        numbers = ",".join(["9" * 4300] * 200)
        frame.f_locals["report"](f'{{"reply":{{"returned":{"9" * 4300}}},"state":{{"users":[{numbers}],"free":[],"names":{{}}}}}}'.encode())
