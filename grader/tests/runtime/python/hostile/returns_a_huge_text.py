"""Returns a text of a hundred million characters."""

class Shelf(Shelf):
    def usage(self):
        return "\ud800" * 100_000_000
