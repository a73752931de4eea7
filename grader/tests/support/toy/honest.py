"""A shelf that is right in all but `usage`: the honest part of hostile programs, which follow it in their file."""


class Box:
    def __init__(self):
        self.users = 0


class Shelf:
    def __init__(self, count):
        self.boxes = [Box() for _ in range(count)]
        self.free = list(self.boxes)
        self.names = {}

    def take(self, count):
        if count > len(self.free):
            raise ValueError("too few boxes are free")
        taken = [self.free.pop(0) for _ in range(count)]
        for box in taken:
            box.users = 1
        return taken

    def give(self, boxes):
        if any(box.users == 0 for box in boxes):
            raise ValueError("a box has no user")
        for box in boxes:
            box.users -= 1
        self.free += [box for box in boxes if box.users == 0]

    def label(self, word, box):
        self.names[word] = box

    def find(self, word):
        return self.names.get(word)

    def usage(self):
        return -1.0
