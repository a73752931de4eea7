"""Sends large messages as fast as it can, in every case."""

import os
import struct

large = struct.pack(">BI", 83, 1 << 20) + bytes(1 << 20)


class Shelf(Shelf):
    def take(self, count):
        for descriptor in range(3, 16):
            try:
                for _ in range(7):
                    os.write(descriptor, large)
            except OSError:
                pass
        return super().take(count)
