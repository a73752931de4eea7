"""A plain harness for pytest: it runs one process per case and compares its records with the expected ones.

It is one of the rivals: rivals.py copies this file, as test_per_case.py, into a folder with a program and its cases.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

TOKEN = 7
_HERE = Path(__file__).parent
_HEAD = struct.Struct("<QII32x")
_STEP = 2


@pytest.mark.parametrize("plan", sorted(_HERE.glob("*.plan")), ids=lambda path: path.stem)
def test_case(plan: Path) -> None:
    """The program reports the expected state after every operation."""
    report = os.memfd_create("report")
    with plan.open("rb") as file:
        done = subprocess.run(
            [_HERE / "program", "0", str(report)], stdin=file, capture_output=True, pass_fds=[report], check=False
        )
    content = os.pread(report, os.fstat(report).st_size, 0)
    os.close(report)

    assert done.returncode == 0
    assert _records(content) == plan.with_suffix(".expected").read_bytes()


def _records(report: bytes) -> bytes:
    """Decode the driver's frames and concatenate all records."""
    records = []
    place = 0
    while place < len(report):
        _, kind, length = _HEAD.unpack_from(report, place)
        place += _HEAD.size
        if kind == _STEP:
            records.append(report[place : place + length])
        place += length
    return b"".join(records)
