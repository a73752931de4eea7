"""Sends records with values of other types than any right one."""

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
        values = ('"\\ud800"', "NaN", "-Infinity", "1e999", "9" * 4000, "9" * 5000, "{}", '{"!":[]}', '{"!":{"\\udc80":1}}', "true")
        for value in values:
            state = f'{{"users":{value},"free":[{value}],"names":{{"red":{value},"\\ud800":1}}}}'
            frame.f_locals["report"](f'{{"reply":{{"raised":{value}}},"state":{state}}}'.encode())
