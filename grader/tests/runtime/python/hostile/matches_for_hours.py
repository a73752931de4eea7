"""Matches an expression for hours in one step."""

import re


class Shelf(Shelf):
    def usage(self):
        return re.match("(a+)+$", "a" * 64 + "b")
