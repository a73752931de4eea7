"""Crashes the interpreter by a signal, by abort, and by its own crash handler."""

import faulthandler
import os


class Shelf(Shelf):
    def usage(self):
        faulthandler.disable()
        try:
            faulthandler._sigsegv()
        finally:
            os.abort()
