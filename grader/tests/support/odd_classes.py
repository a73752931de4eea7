"""Classes with every odd entry that a folder or a zip can have, for the lab of the counter."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.packing import encrypted, link, packed

NAME = "counter.sh"
LONG = "n" * 248
"""With an extension it has 251 bytes."""
_GOOD, _OTHER = RIGHT.encode(), BELOW.encode()


def put(path: Path, content: bytes = _GOOD) -> None:
    """Write a file, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def odd_folder(folder: Path) -> int:
    """Make a class of odd entries; return how many of them are no submissions."""
    put(folder.parent / "outside" / NAME)
    for name in ("ann/counter.sh", "Ann/src/counter.sh", "dir.sh/counter.sh", "file.sh", f"{LONG}.sh"):
        put(folder / name)
    put(folder / f"f{LONG}" / NAME)
    put(folder / f"{LONG}.zip", packed({NAME: _GOOD}))
    for unread in (b"b\xffd.sh", b"b\xffd dir/counter.sh", b"new\nline.sh", rb"b\udcffd.sh", b"f\xff\xfe.zip"):
        put(folder / os.fsdecode(unread), packed({NAME: _GOOD}) if unread.endswith(b"zip") else _GOOD)
    (folder / "empty").mkdir()
    put(folder / "notes only" / "notes.txt")
    for half in ("a", "b"):
        put(folder / "tie" / half / NAME)
    put(folder / "inner" / "hw.zip", packed({NAME: _GOOD}))
    zips = {
        "kim": packed({f"hw3/{NAME}": _GOOD}), "file": packed({NAME: _OTHER}), "ann": packed({NAME: _OTHER}),
        "nothing": packed({}), "no bytes": b"", "cut": packed({NAME: _GOOD * 9})[:99],
        "secret": encrypted(packed({NAME: _GOOD})), "climbs": packed({NAME: _GOOD, "../x.sh": _GOOD}),
        "linked": packed({NAME: link(NAME)}), "deep": packed({f"{'d/' * 70}{NAME}": _GOOD}),
        "many": packed(dict.fromkeys((f"{number}.txt" for number in range(20_001)), b"") | {NAME: _GOOD}),
        "large": packed({f"{number}.sh": bytes(1 << 20) for number in range(65)}),
    }  # fmt: skip
    for name, content in zips.items():
        put(folder / f"{name}.zip", content)
    for name, target in {
        "gone": "nowhere", "loop": "loop", "to outside": "../outside", "to inside": "ann", "linked.sh": "file.sh",
        "linked zip.zip": "kim.zip",
    }.items():  # fmt: skip
        (folder / name).symlink_to(target)
    put(folder / "link inside" / "src" / "right.sh", _GOOD)
    (folder / "link inside" / NAME).symlink_to("src/right.sh")
    os.mkfifo(folder / "pipe.sh")
    put(folder / "locked" / NAME)
    (folder / "locked").chmod(0)
    put(folder / "locked.sh")
    (folder / "locked.sh").chmod(0)

    before = len(list(folder.iterdir()))
    put(folder / "ann2" / "src" / NAME)
    put(folder / "ann2.zip", packed({f"src/{NAME}": _GOOD}))
    for name in (".DS_Store", ".git/config", ".hidden.sh", f"__MACOSX/{NAME}", "README", "ann.rar", "ann.SH"):
        put(folder / name)
    os.mkfifo(folder / "pipe")
    (folder / "linked notes").symlink_to("README")
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{place}/socket")  # the path itself may be too long for a socket
    os.close(place)
    return len(list(folder.iterdir())) - before - 1


def odd_zip() -> tuple[bytes, int, int]:
    """Return the zip of a class of odd entries, the number of its entries, and of those that are no submissions."""
    start, end = "s" * 240, "e" * 20
    files: dict[str, bytes] = {
        "hw/ann/counter.sh": _GOOD, "hw/Ann/counter.sh": _GOOD, "hw/bob.zip": packed({f"ann/{NAME}": _GOOD}),
        "hw/bob/counter.sh": _OTHER, "hw/cem.zip": packed({NAME: _GOOD}), "hw/cem/counter.sh": _GOOD,
        "hw/flat.sh": _GOOD, f"hw/{start}1{end}.sh": _GOOD, f"hw/{start}2{end}.sh": _OTHER, f"hw/{LONG}.sh": _GOOD,
        "hw/empty/": b"", "hw/only hidden/.counter.sh": _GOOD, "hw/secret.zip": encrypted(packed({NAME: _GOOD})),
        "hw/no zip.zip": b"PK", f"hw/deep/{'d/' * 70}{NAME}": _GOOD, "hw/climbs/../../x.sh": _GOOD,
        "hw/climbs/counter.sh": _GOOD, "/etc/x.sh": _GOOD, "hw/unread\xe9/counter.sh": _GOOD,
        "hw/.DS_Store": b"x", "hw/.git/config": b"x", "hw/notes.txt": b"x", "hw/ann.rar": b"x",
        "__MACOSX/hw/._ann": b"x", ".hidden": b"x", "empty beside/": b"",
    }  # fmt: skip
    many = {f"hw/many/{number}.txt": b"" for number in range(20_001)}
    links = {"hw/linked.sh": link("hw/linked.sh"), "hw/linked": link("hw/linked")}
    content = packed({**files, **many, **links}).replace("unread\xe9".encode(), b"unread\xff\xfe")
    return content, 28, 8
