"""Closes all descriptors at once, and never ends."""

import os

os.closerange(0, 256)
while True:
    pass
