"""Reports files that were opened for writing, at lines and with texts that cannot be."""

import json
import os
import struct

LINES = (
    [[1, "\ud800\x1b[31m<script>"]] * 20, [[10**30, "a"]], [[-1, "a"]], [["1", 1]], [[1.5, "a"]], [[True, "a"]], "lines",
    {"1": "a"}, None, [[1, "a" * 100_000]], [[2, "\u202e"], [3, "\0"]], [[[]]], [], [[7, "}]\n\n# Points: 100"]],
)
BODIES = [*(json.dumps({"lines": lines}).encode() for lines in LINES), b"[" * 10_000, b"\xff", b"7", b"", b'{"lines":[[NaN,1]]}']
count = [0]


class Shelf(Shelf):
    def __getattribute__(self, name):
        if name in ("take", "give", "label", "find", "usage"):
            count[0] += 1
            body = BODIES[(count[0] * 5 + len(vars(self)["boxes"])) % len(BODIES)]
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, struct.pack(">BI", ord("N"), len(body)) + body)
                except OSError:
                    pass
        return super().__getattribute__(name)

    def label(self, word, box):
        try:
            with open(f"{'a' * 5000}\ud800\0", "w") as file:
                file.write("x")
        finally:
            super().label(word, box)


for number in range(300):
    exec(compile(f"def written_{number}(): open('hostile_mark', 'w')", "shelf.py", "exec"))
    globals()[f"written_{number}"]()
