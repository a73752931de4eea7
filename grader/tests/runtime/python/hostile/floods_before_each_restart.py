"""Sends as much as one process may, and then asks for a module, so that it may send as much again."""

import os
import struct
import sys

BODY = b'{"lines":[' + b"[1,2]," * 300_000 + b"[]]}"


def send(kind):
    for descriptor in range(3, 64):
        try:
            data = memoryview(struct.pack(">BI", ord(kind), len(BODY)) + BODY)
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            pass


class Shelf(Shelf):
    def usage(self):
        for name in sorted(sys.stdlib_module_names):
            if name not in sys.modules:
                for kind in "NXHS":
                    send(kind)
                try:
                    __import__(name)
                except ImportError:
                    pass
        return super().usage()
