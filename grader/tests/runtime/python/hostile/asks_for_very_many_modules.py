"""Asks for another large module in each call, and for names that no module has."""

import importlib
import sys

LARGE = "asyncio xmlrpc.server unittest.mock ssl sqlite3 multiprocessing.managers pydoc_data.topics email.mime.text http.server"
NAMES = [*LARGE.split(), *sorted(sys.stdlib_module_names), *(f"encodings.hostile_{number}" for number in range(1000))]


class Shelf(Shelf):
    def usage(self):
        for name in NAMES:
            try:
                importlib.import_module(name)
            except ImportError:
                pass
        return super().usage()
