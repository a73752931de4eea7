"""Reads from every descriptor, for later cases of the feed."""

import os
import select

for descriptor in range(64):
    try:
        if select.select([descriptor], [], [], 0)[0]:
            text = os.read(descriptor, 65536)
            if text:
                print("hostile: it can be read", descriptor, text[:80])
    except BaseException:
        pass
