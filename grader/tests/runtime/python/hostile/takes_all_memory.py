"""Takes memory in small pieces, and keeps it."""

class Shelf(Shelf):
    def usage(self):
        pieces = []
        while True:
            pieces.append(bytearray(1 << 16))
