"""Takes more memory at once than there is, and catches the error."""

class Shelf(Shelf):
    def usage(self):
        for size in range(60, 10, -1):
            try:
                return bytes(1 << size)
            except (MemoryError, OverflowError):
                pass
