"""The labs that can be graded, by name. To add an assignment, add a package here and a line in `LABS`.

A lab's module is imported when the lab is used: other labs may be missing, and importing them costs no time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from grader.assignment.lab import Lab

__all__ = ["LABS", "LabEntry", "open_lab", "present"]

_HERE = Path(__file__).parent


class LabEntry(NamedTuple):
    """A lab that can be graded."""

    source_name: str
    """The file that students submit. Its name tells which lab it belongs to."""
    open: Callable[[], Lab]
    """Returns the lab. Raises `RubricError` when a file in its folder of cases is wrong."""
    folder: str = ""
    """The lab's package in this folder. A bundle of another lab lacks it."""


def _in(folder: str, source_name: str) -> LabEntry:
    """Return the entry of a lab in a package here; its module `lab` is imported when the lab is opened."""

    @cache
    def opened() -> Lab:
        lab: Lab = import_module(f"grader.labs.{folder}.lab").lab()
        return lab

    return LabEntry(source_name, opened, folder)


LABS: dict[str, LabEntry] = {
    "paged_kv": _in("paged_kv", "llm_memory.c"),
    "block_pool": _in("block_pool", "block_pool.py"),
    "scheduler": _in("scheduler", "scheduler.py"),
    "hybrid": _in("hybrid", "hybrid.py"),
    "offload": _in("offload", "offload.py"),
}


def present() -> list[str]:
    """Return the names of the labs whose packages exist: a bundle has only one of them."""
    return [name for name, entry in LABS.items() if (_HERE / entry.folder).is_dir()]


def open_lab(name: str) -> Lab:
    """Return the lab of that name. Raises `KeyError` for an unknown name, `RubricError` if its files are wrong."""
    return LABS[name].open()
