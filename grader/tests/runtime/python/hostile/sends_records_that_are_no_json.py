"""Sends records that are no JSON objects with a reply and a state."""

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
        texts = (b"", b"[]", b"\xff\xfe", b"{}", b'{"reply":1,"state":[]}', b'{"state":{}}', b'{"reply":{},"state":{}}', b"\x00")
        for text in texts:
            frame.f_locals["report"](text)
