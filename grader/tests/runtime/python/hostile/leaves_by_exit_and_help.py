"""Calls exit(), quit(), help() and the like in odd ways, and replaces what they use."""

import builtins
import sys


class Code:
    def __index__(self):
        raise SystemExit(0)

    __str__ = __repr__ = __int__ = lambda self: exit(0)


class Shelf(Shelf):
    def usage(self):
        for attempt in (
            lambda: exit(Code()),
            lambda: quit("\ud800" * 10),
            lambda: help("os"),
            lambda: help("modules"),
            lambda: help("modules hostile"),
            lambda: help(Code),
            lambda: help(Code()),
            lambda: help(),
            lambda: license(),
            lambda: repr(license),
            lambda: license._Printer__filenames.append("/etc/passwd") or license._Printer__setup() or license(),
            lambda: print("hostile: it is read", license._Printer__lines) if "root:" in str(license._Printer__lines) else 0,
            lambda: copyright(),
            lambda: credits(),
            lambda: sys.exit(10**40),
            lambda: setattr(builtins, "SystemExit", ValueError) or exit(),
        ):
            try:
                attempt()
            except BaseException:
                pass
        return super().usage()

    def give(self, boxes):
        super().give(boxes)
        if len(boxes) > 2:
            exit(0)
