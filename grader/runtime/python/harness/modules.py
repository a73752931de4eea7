"""The modules that a submission may import: those that its text names (look.py), and those that the lab gives.

Calls on given modules are recorded, for the lab's table to read.
"""

import os
import site
import sys

from plain import MOST_VALUES, Unreadable, plain

MOST_CHARACTERS = 100
"""No module has a longer name. One that a message cuts off, or cannot encode, would be asked for again and again."""
_FUNCTION = type(lambda: None)


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


class Given:
    """The given modules, executed anew for each trace, and the calls on them since they were read last.

    Calls are recorded only for a table that reads them: a program makes hundreds of thousands.
    """

    def __init__(self, codes, *, recorded):
        self.codes = codes
        self.recorded = recorded
        self.wraps = __import__("functools").wraps if recorded else None
        self.calls = {}

    def execute(self):
        """Execute all modules, under names by which they can be imported."""
        self.calls = {name: [] for name in self.codes}
        for name, code in self.codes.items():
            module = sys.modules[name] = type(sys)(name)
            exec(code, module.__dict__)
            if self.recorded:
                self._record(name, module.__dict__, "", module.__name__)

    def calls_of(self, name):
        """Return the calls on a module since they were read last, each as [function, argument, ...]."""
        calls, self.calls[name] = self.calls[name], []
        return calls

    def _record(self, name, attributes, prefix, home):
        """Record calls of the public functions and methods that the module defines itself."""
        for key, value in list(attributes.items()):
            if key.startswith("_"):
                continue
            if isinstance(value, _FUNCTION) and value.__module__ == home:
                attributes[key] = self._recorded(name, prefix + key, value, bound=bool(prefix))
            elif isinstance(value, type) and value.__module__ == home:
                methods = dict(vars(value))
                self._record(name, methods, f"{key}.", home)
                for method, function in methods.items():
                    if function is not vars(value).get(method):
                        setattr(value, method, function)

    def _recorded(self, name, called, function, *, bound):
        @self.wraps(function)
        def call(*arguments, **named):
            calls = self.calls[name]
            if len(calls) < MOST_VALUES:
                calls.append([called, *map(_shown, arguments[bound:]), *map(_shown, named.values())])
            return function(*arguments, **named)

        return call


def _shown(value):
    """An argument as a record has it; "?" for an object."""
    try:
        return plain(value)
    except Unreadable:
        return "?"
