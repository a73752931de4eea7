"""Sends records that are nested so deep that only some readers can read them."""

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
        for depth in (40, 200, 400, 600, 800, 900, 950, 970, 990):
            text = b"[" * depth + b"]" * depth
            frame.f_locals["report"](b'{"reply":{"returned":%b},"state":{"users":%b,"free":%b,"names":%b}}' % (text, text, text, text))
