"""Is slow to import, and sends messages meanwhile, in its check only: it is given the time, and uses it up later."""

import os
import struct
import sys
import time

frame, names = sys._getframe(), set()
while frame:
    names.add(frame.f_code.co_name)
    frame = frame.f_back
message = struct.pack(">BI", ord("I"), 0)
for _ in range(6 * ("check" in names)):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, message)
        except OSError:
            pass
    time.sleep(0.78)


class Shelf(Shelf):
    def usage(self):
        time.sleep(0.45)
        return super().usage()
