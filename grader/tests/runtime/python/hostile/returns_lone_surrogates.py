"""Returns texts that UTF-8 cannot write."""

class Shelf(Shelf):
    def usage(self):
        return {"\ud800": "\udfff", "\x00": "\ud800" * 4000}
