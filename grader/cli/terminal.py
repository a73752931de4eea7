"""What stdout and stderr can show: how wide, and whether what steers a terminal means anything there."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["columns", "console", "is_colourful", "is_live"]

_MOST_COLUMNS = 1000
_LINES = 24  # the functions that tell how large a terminal is want to know


def columns(piped: int) -> int:
    """How wide stdout is: what COLUMNS says, else the terminal's width, else `piped`."""
    return min(shutil.get_terminal_size((piped, _LINES)).columns, _MOST_COLUMNS)


def console(piped: int) -> Console:
    """Where tables go: stdout, so wide where it is no terminal and COLUMNS says nothing."""
    from rich.console import Console

    return Console(width=columns(piped), highlight=False)


def is_live(stream: TextIO) -> bool:
    """Can a line of it be drawn anew? Not where TERM is `dumb`: there nothing is written that is not to be read."""
    return stream.isatty() and not _is_dumb()


def is_colourful() -> bool:
    """May stdout have colours? On a terminal or by FORCE_COLOR, and not where NO_COLOR or TERM says no."""
    wanted = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    return wanted and not os.environ.get("NO_COLOR") and not _is_dumb()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")  # as rich sees it
