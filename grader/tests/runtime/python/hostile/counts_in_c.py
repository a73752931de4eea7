"""Computes a number for hours in one step, in which no signal is answered."""

class Shelf(Shelf):
    def usage(self):
        return 7 ** 7 ** 7 ** 7
