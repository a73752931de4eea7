"""Raises a class of its own that only is named ValueError, with a name of lines."""

class Shelf(Shelf):
    def usage(self):
        raise type("ValueError", (BaseException,), {"__module__": "builtins"})(type("\n\x1b[31mValueError", (), {})())
