"""Raises an error none of whose methods returns."""

class Stubborn(ValueError):
    def endless(self, *_):
        while True:
            pass

    __str__ = __repr__ = __eq__ = __hash__ = __reduce__ = __format__ = __bool__ = endless
    args = property(endless)
    __traceback__ = property(endless, endless)
    __cause__ = property(endless)
    __class__ = property(endless)


class Shelf(Shelf):
    def usage(self):
        raise Stubborn(self)
