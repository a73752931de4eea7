"""Raises SystemExit with an object that never ends when it is printed."""

class Code:
    def __str__(self):
        while True:
            pass

    __repr__ = __index__ = __int__ = __str__


raise SystemExit(Code())
