"""Asks for modules of wild names: paths, null bytes, surrogates, very long ones, subclasses of str that change."""

import sys


class Name(str):
    asked = 0

    def split(self, *_):
        return ["os"]

    def encode(self, *_, **__):
        Name.asked += 1
        return b"\xff" * (Name.asked % 3) + b"encodings.\0../../\xed\xa0\x80"

    def isascii(self):
        return True

    def __hash__(self):
        return id(self)

    def __eq__(self, _):
        return False


WILD = (
    *("encodings.../../tmp/x", "encodings./etc/passwd", "os.\0", "os.\ud800", "os." + "a" * 5000, "os" + ".os" * 900, "os."),
    *("__main__", "cage", "play", "program.os", "plain", "site", "sitecustomize", "usercustomize", "test.support"),
    *("_sysconfigdata_", "_sysconfigdata_../../x", "_sysconfigdata_.__init__", "json.__main__", "_tkinter", "_ctypes"),
    *("idlelib.run", "antigravity", "this", "ctypes.util", "_testcapi", "xxlimited", "_xxsubinterpreters", ".", "..", ""),
)


def ask(name):
    for way in (__import__, sys.meta_path[0].find_spec, lambda name: sys.audit("import", name, None, None, None, None)):
        try:
            way(name)
        except Exception:
            pass


class Shelf(Shelf):
    def usage(self):
        for name in WILD:
            ask(name)
        for wild in (b"os", None, 7, ["os"], object()):
            ask(wild)
        return super().usage()

    def find(self, word):
        if len(self.boxes) > 3:
            ask(Name("os.hostile"))
        return super().find(word)
