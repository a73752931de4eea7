"""Zip archives as students and attackers make them."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping


def packed(files: Mapping[str, bytes | zipfile.ZipInfo], *, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip of these files; the content of an entry given as `ZipInfo` is a path."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as file:
        for name, content in files.items():
            if isinstance(content, zipfile.ZipInfo):
                file.writestr(content, "/etc/passwd")
            else:
                file.writestr(name, content)
    return made.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    """Return the zip entry of a symbolic link."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def encrypted(content: bytes) -> bytes:
    """Return the same zip, marked as protected by a password."""
    changed = bytearray(content)
    changed[6] |= 1
    changed[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(changed)
