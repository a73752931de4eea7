"""Zips as students and attackers pack them."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping

__all__ = ["encrypted", "link", "packed"]


def packed(files: Mapping[str, bytes | zipfile.ZipInfo], *, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of these files; an entry that is given as it is holds a path."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as file:
        for name, content in files.items():
            if isinstance(content, zipfile.ZipInfo):
                file.writestr(content, "/etc/passwd")
            else:
                file.writestr(name, content)
    return made.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    """A symbolic link, as zips know them."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def encrypted(content: bytes) -> bytes:
    """The same zip with the marks of a password."""
    changed = bytearray(content)
    changed[6] |= 1
    changed[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(changed)
