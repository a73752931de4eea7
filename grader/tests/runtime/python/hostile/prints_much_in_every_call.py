"""Prints 100 kB in each call, with control characters."""

class Shelf(Shelf):
    def take(self, count):
        print("\x1b]0;hostile\x07\x1b[2J" * 5000)
        return super().take(count)
