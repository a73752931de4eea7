"""Leaves states in which very many values are wrong, in every call."""

class Shelf(Shelf):
    def __init__(self, count):
        super().__init__(count)
        self.names = {f"{number} \x1b[31m<b>": None for number in range(5_000)}

    def take(self, count):
        self.free = [None] * 15_000
        return self.free
