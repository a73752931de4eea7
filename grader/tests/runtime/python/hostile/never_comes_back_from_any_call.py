"""Never comes back from any call of its interface."""

def endless(self, *_):
    while True:
        pass


for name in ("take", "give", "label", "find", "usage"):
    setattr(Shelf, name, endless)
