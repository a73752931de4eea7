"""Is slow to import, so that cases share a process, in which it looks for later ones and reports them itself."""

import sys
import time

time.sleep(0.1)
seen = {}


def sent(frame, kind, body):
    while frame:
        send = frame.f_locals.get("send")
        if callable(send):
            try:
                send(kind, body)
            except BaseException:
                pass
            return
        frame = frame.f_back


class Shelf(Shelf):
    def usage(self):
        frame = sys._getframe(1)
        while frame:
            for name in ("left", "traces", "lengths", "case"):
                if name in frame.f_locals:
                    seen.setdefault(name, frame.f_locals[name])
            frame = frame.f_back
        seen["count"] = seen.get("count", 0) + 1
        for body in (b"", b"[]", b'[{"reply":{"returned":null},"state":{}}]', b"\xff", b"[" * 9000):
            sent(sys._getframe(1), b"T", body)
        if isinstance(seen.get("left"), list):
            del seen["left"][:]
        return super().usage()
