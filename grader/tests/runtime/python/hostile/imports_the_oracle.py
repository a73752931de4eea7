"""Imports the oracle, with a path and importers of its own."""

import sys

found = []
sys.path[:0] = ["HOSTILE_ROOT", "/usr/lib/python3/dist-packages", ".", ".."]
sys.path_importer_cache.clear()
for name in ("grader.tests.support.toy.engine", "reference.oracle", "grader", "yaml", "_ctypes"):
    for attempt in (
        lambda name=name: __import__(name),
        lambda name=name: sys.meta_path[-1].find_spec(name).loader.load_module(name),
    ):
        try:
            found.append(attempt())
        except BaseException:
            pass
if found:
    print("hostile: it can be imported", found)


class Shelf(Shelf):
    def usage(self):
        return sum(box.users > 0 for box in self.boxes) / len(self.boxes) if found else None
