"""Returns an integer of a million digits."""

class Shelf(Shelf):
    def usage(self):
        return 10 ** 1_000_000
