"""Closes all descriptors in the middle of a case."""

import os


class Shelf(Shelf):
    def usage(self):
        os.closerange(0, 256)
