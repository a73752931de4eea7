"""What stdout and stderr can show: their width, and whether terminal control sequences work there."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_MOST_COLUMNS = 1000
_LINES = 24  # not used, but shutil.get_terminal_size requires it


def columns(piped: int) -> int:
    """Return the width of stdout: the value of COLUMNS, else the terminal's width, else `piped`."""
    return min(shutil.get_terminal_size((piped, _LINES)).columns, _MOST_COLUMNS)


def console(piped: int) -> Console:
    """Return a console for tables on stdout, `piped` columns wide when it is no terminal and COLUMNS is not set."""
    from rich.console import Console

    return Console(width=columns(piped), highlight=False)


def is_live(stream: TextIO) -> bool:
    """Whether a line of the stream can be redrawn. Not where TERM is `dumb`: there only readable text is written."""
    return stream.isatty() and not _is_dumb()


def is_colourful() -> bool:
    """Whether stdout may have colours: on a terminal or with FORCE_COLOR, unless NO_COLOR or TERM forbids it."""
    wanted = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    return wanted and not os.environ.get("NO_COLOR") and not _is_dumb()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")  # as rich does
