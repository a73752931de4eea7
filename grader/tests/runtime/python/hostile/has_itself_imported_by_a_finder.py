"""Puts finders of its own before all others."""

import builtins
import sys


class Finder:
    @staticmethod
    def find_spec(*_):
        while True:
            pass


sys.meta_path.insert(0, Finder)
builtins.__import__ = lambda *_, **__: sys.modules[__name__]
