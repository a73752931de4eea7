"""Leaves states of a hundred thousand boxes and names."""

class Shelf(Shelf):
    def take(self, count):
        self.boxes += [Box() for _ in range(100_000)]
        self.free = self.free * 100_000
        self.names = {str(number): self.boxes[0] for number in range(100_000)}
        return []
