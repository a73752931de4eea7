"""What is being done, on a line of the terminal that is gone afterwards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from grader.cli.terminal import is_live
from grader.report.escape import escape

__all__ = ["status"]


@contextlib.contextmanager
def status(name: str) -> Iterator[Callable[[str], None]]:
    """A function to tell it what is being done with `name`. Where no line can be drawn anew it shows nothing."""
    if not is_live(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    def told(doing: str) -> Text:  # as it stands, for a name may look like markup or steer the terminal
        return Text(f"{escape(name)}: {doing}")

    with Console(stderr=True).status(told("starting")) as shown:
        yield lambda doing: shown.update(told(doing))
