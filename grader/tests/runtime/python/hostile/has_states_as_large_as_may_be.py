"""Leaves states just below what is read of them, in every call."""

names = {f"{number:04000}": None for number in range(400)}


class Shelf(Shelf):
    def __init__(self, count):
        super().__init__(count)
        self.boxes += [Box() for _ in range(19_000)]
        for box in self.boxes:
            box.users = 10**76
        self.names = names
