"""Reports errors and places whose lines and names no file has."""

import os
import sys
from json import dumps


def frames():
    frame = sys._getframe(1)
    while frame:
        yield frame
        frame = frame.f_back


class Shelf(Shelf):
    def usage(self):
        runner = next(f.f_locals["self"] for f in frames() if hasattr(f.f_locals.get("self"), "send"))
        lines = [[10**300, "a"], [-1, "b"], [0, "\\ud800"], [2**63, "c" * 10**5], [True, "d"], [1.5, "e"], ["1", "f"], 7, []]
        for kind in (b"X", b"H", b"R", b"L"):
            for where in ("import", "argument", "call", ["x"], {}):
                text = dumps({"where": where, "error": "\\ud800" * 9, "message": "\\x1b[31m" * 10**5, "lines": lines})
                runner.send(kind, text.encode())
        os._exit(1)
