"""Names boxes by objects that are equal to everything and cannot be hashed twice."""

class Key(str):
    count = 0

    def __hash__(self):
        Key.count += 1
        return Key.count

    __eq__ = lambda self, other: True


class Shelf(Shelf):
    def usage(self):
        self.names[Key("red")] = self.names[None] = self.names[(1,)] = self.names[10**300] = self.boxes[0]
