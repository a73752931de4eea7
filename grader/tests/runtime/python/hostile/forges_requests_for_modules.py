"""Writes messages that ask for modules, for all that might have an effect where they are imported, and plays on."""

import os
import struct
import sys

NAMES = "play cage test.regrtest idlelib.idle antigravity this _tkinter tkinter turtle sitecustomize ctypes _ctypes"
NAMES += " _xxsubinterpreters _interpreters readline faulthandler multiprocessing.resource_tracker __hello__ __phello__"
NAMES += " lib2to3.pgen2.driver ensurepip venv unittest.__main__ asyncio.__main__ curses pty crypt hostile"
place = [0]


def asked(body):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack(">BI", ord("M"), len(body)) + body)
        except OSError:
            pass


class Shelf(Shelf):
    def take(self, count):
        name = NAMES.split()[sum(name in sys.modules for name in NAMES.split()) % len(NAMES.split())]
        asked(name.encode())
        return super().take(count)

    def usage(self):
        asked(b"\xff\x00os" * 100_000)
        asked(NAMES.split()[len(self.boxes) * 3].encode())
        asked(b"")
        return super().usage()


for name in ("_ctypes", "_tkinter", "antigravity", "test.regrtest", "idlelib.idle", "cage", "__phello__"):
    if sys.modules.get(name) is not None:
        print("hostile: it was imported", name)
