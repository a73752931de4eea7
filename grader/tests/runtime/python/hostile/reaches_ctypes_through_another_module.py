"""Imports ctypes through a module that imports it, and writes into memory."""

import multiprocessing.sharedctypes

try:
    multiprocessing.sharedctypes.ctypes.memset(id(None), 0, 64)
except BaseException:
    import sys

    for module in list(sys.modules.values()):
        if hasattr(module, "memset"):
            module.memset(id(None), 0, 64)
