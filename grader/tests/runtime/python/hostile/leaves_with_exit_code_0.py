"""Ends its process with exit code 0."""

import os


class Shelf(Shelf):
    def usage(self):
        os._exit(0)
