"""Reads the oracle in all places where it may be, and answers with it."""

import io
import os
import pathlib
import sys

ROOTS = [".", "..", "/", "/tmp", "HOSTILE_ROOT", "/root", *sys.path, os.environ.get("HOME", "")]
NAMES = ["grader/tests/support/toy/engine.py", "reference/oracle.py", "play.pyc", "feed", "program", "cases"]


def text_of(path):
    for read in (
        lambda: open(path).read(),
        lambda: io.open_code(path).read(),
        lambda: io.FileIO(path).read(),
        lambda: pathlib.Path(path).read_text(),
        lambda: os.read(os.open(path, os.O_RDONLY), 99999),
        lambda: sys.meta_path[-1].find_spec("engine", [os.path.dirname(path)]).loader.get_data(path),
        lambda: os.listdir(path),
    ):
        try:
            return read()
        except BaseException:
            pass
    return None


found = [text for root in ROOTS for name in NAMES if (text := text_of(f"{root}/{name}")) is not None]
if found:
    print("hostile: it can be read", found)


class Shelf(Shelf):
    def usage(self):
        return sum(box.users > 0 for box in self.boxes) / len(self.boxes) if found else None
