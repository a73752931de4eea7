"""Writes a gigabyte into files that keep nothing, and asks them for more than a file can do."""

import io

PIECE = bytes(1 << 24)


class Shelf(Shelf):
    def take(self, count):
        with open("hostile_mark", "w+b", buffering=0) as file:
            for _ in range(64):
                file.write(PIECE)
            file.truncate(1 << 62)
            file.seek(-(1 << 70))
            file.read(), file.readall(), file.readinto(bytearray(1 << 20)), file.writelines([PIECE] * 4)
        return super().take(count)

    def usage(self):
        for mode in ("w", "wb", "a+", "x", "w+", "wt+", "U", "rw", "wb" * 9, "", "\0", 7, None):
            for buffering in (-1, 0, 1, 2, 1 << 30, -7):
                for name in ("hostile_mark", b"hostile_mark", 1, -1, None, object(), io, "a" * 70_000):
                    try:
                        file = open(name, mode, buffering)
                        file.fileno()
                    except BaseException:
                        pass
        return super().usage()
