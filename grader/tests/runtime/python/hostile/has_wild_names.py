"""Names boxes by texts that no report can hold."""

class Shelf(Shelf):
    def usage(self):
        for name in ("\ud800", "\x00", "\x1b[31m", "<script>", "a" * 4096, "\n\n", "\u202e"):
            self.names[name] = self.boxes[0]
