"""Keeps a view of a buffer that its reader has freed, and writes through it into whatever lies there now."""

import io


class File(io.RawIOBase):
    view = None

    def readinto(self, buffer):
        File.view = buffer
        return 0

    def readable(self):
        return True


class Shelf(Shelf):
    def usage(self):
        reader = io.BufferedReader(File())
        reader.read(1)
        del reader
        view = File.view.cast("P")
        value = [None] * len(view)
        for place in range(len(view)):
            view[place] = 1
        return value
