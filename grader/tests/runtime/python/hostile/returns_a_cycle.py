"""Returns a list that contains itself, and leaves one in its state."""

class Shelf(Shelf):
    def usage(self):
        cycle = []
        cycle.append(cycle)
        self.free = cycle
        self.names["self"] = self.names
        return cycle
