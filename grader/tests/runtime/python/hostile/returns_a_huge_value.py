"""Returns lists of lists of lists."""

class Shelf(Shelf):
    def usage(self):
        value = [0] * 20
        for _ in range(15):
            value = [value] * 20
        return value
