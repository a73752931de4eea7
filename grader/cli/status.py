"""A line of the terminal that shows what is being done and disappears afterwards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from grader.cli.terminal import is_live
from grader.report.escape import escape


@contextlib.contextmanager
def status(name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done with `name`. Where no line can be redrawn it shows nothing."""
    if not is_live(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    def line(doing: str) -> Text:  # not markup, and escaped: a name may look like markup or control the terminal
        return Text(f"{escape(name)}: {doing}")

    with Console(stderr=True).status(line("starting")) as shown:
        yield lambda doing: shown.update(line(doing))
