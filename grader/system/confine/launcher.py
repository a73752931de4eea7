"""Compile confine.c, the launcher of every program that a workspace runs."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from grader.core.errors import BrokenTool
from grader.system import process
from grader.system.build_cache import cached
from grader.system.process import Completed, Patience

_HERE = Path(__file__).parent
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
_PATIENCE = Patience(wall_seconds=60)


@cache
def launcher() -> Path:
    """Return the launcher; it is compiled if this version is not cached.

    Raises `BrokenTool`, and `CannotStart` without a C compiler.
    """
    sources = sorted(_HERE.glob("*.[ch]"))
    return cached([source.read_bytes() for source in sources], _make) / "confine"


def _make(folder: Path) -> None:
    """Compile the launcher into `folder`, statically where a static libc exists: it starts in a third of the time."""
    done = _compiled(folder, "-static")
    if not done.succeeded:
        done = _compiled(folder)
    if not done.succeeded:
        raise BrokenTool(f"our own launcher does not compile:\n{done.stderr.decode(errors='replace')}")
    paths = {"PATH": "/usr/bin:/bin"}
    starts = process.run(["./confine", "--", "true"], cwd=folder, limits=_PATIENCE, environment=paths)
    if not starts.succeeded:  # a launcher that does not work is not cached
        raise BrokenTool(f"our own launcher does not work:\n{starts.stderr.decode(errors='replace')}")


def _compiled(folder: Path, *options: str) -> Completed:
    return process.run(
        ["cc", *_FLAGS, *options, "-o", "confine", str(_HERE / "confine.c")],
        cwd=folder,
        limits=_PATIENCE,
        environment={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
    )
