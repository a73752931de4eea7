"""The modules that a submission may import: those that its text names (look.py), and those that the lab gives."""

import os
import site
import sys

MOST_CHARACTERS = 100
"""No module has a longer name. One that a message cuts off, or cannot encode, would be asked for again and again."""
_REFUSED = {
    "ctypes",
    "antigravity",
    "this",
    "turtle",
    "turtledemo",
    "tkinter",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "venv",
}
_PRIVATE = {"__future__", "_thread"}


def may_be_imported(name, given):
    """Whether a submission may import this module: the standard library's public ones, and what the lab gives."""
    top, *below = name.split(".")
    if top in given:
        return True
    public = top in _PRIVATE or not any(part.startswith("_") for part in (top, *below))
    return public and may_be_loaded(name)


def may_be_loaded(name):
    """Whether a module is one of the standard library, which its other modules may import, too."""
    top, *below = name.split(".")
    known = top in sys.stdlib_module_names or top.startswith("_sysconfigdata_")  # whose name has the platform in it
    known = known and name.isascii() and len(name) <= MOST_CHARACTERS
    return known and top not in _REFUSED and "__main__" not in below  # which runs a program


def add_site_builtins():
    """Add `exit`, `quit` and the like, which every Python has that is not isolated."""
    site.setquit()
    site.setcopyright()
    site.sethelper()


def preload(names):
    """Import modules before a program runs, which itself can open no file."""
    for name in names:
        try:
            __import__(name)
        except (Exception, SystemExit):  # noqa: S112 - of another system; the program will see an ImportError
            continue


def asking(send, asked, *, ends):
    """Return what is called with the name of a module that is not there: it raises the error of the statement.

    A module of the standard library that nobody has asked for yet is asked for, which ends this process.
    """
    leave, missing = os._exit, ModuleNotFoundError

    def ask(name, *_):
        if not may_be_loaded(name):
            raise missing(f"{name} is not among the modules that may be imported here", name=name)
        if ends and name not in asked:
            send(b"M", name.encode())
            leave(0)
        raise missing(f"No module named {name!r}", name=name)

    return ask
