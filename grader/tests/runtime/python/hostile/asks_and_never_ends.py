"""Asks for another module at the end of its time in every call, so that each is played a hundred times."""

import os
import struct
import sys
import time


class Shelf(Shelf):
    def usage(self):
        for name in sorted(sys.stdlib_module_names):
            if name not in sys.modules:
                body = name.encode()
                for descriptor in range(3, 64):
                    try:
                        os.write(descriptor, struct.pack(">BI", ord("M"), len(body)) + body)
                    except OSError:
                        pass
                time.sleep(0.45)
        while True:
            time.sleep(0.01)
