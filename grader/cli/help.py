"""What `--help` shows: how to write it, a text, and a box for each kind of thing that may be written."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from textwrap import indent

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

__all__ = ["paragraphs", "show"]


def show(usage: str, text: str, boxes: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Draw it; `boxes` hold names and what they mean, by their titles."""
    console = Console(highlight=False)
    console.print(Padding(Text.assemble(("Usage: ", "bold yellow"), (usage, "bold")), 1))
    for paragraph in paragraphs(text):
        if "\n" in paragraph:
            console.print(Text(indent(paragraph, " ")), soft_wrap=True)  # long lines in one piece, to be copied
            console.print()
        else:
            console.print(Padding(Text(paragraph), (0, 1, 1, 1)))
    for title, rows in boxes.items():
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="bold cyan")
        for name, meaning in rows:
            table.add_row(name, Text(meaning))
        if rows:
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def paragraphs(text: str) -> list[str]:
    """Those of a docstring: one line each, but where some lines are indented all stand as they are written."""
    written = inspect.cleandoc(text).split("\n\n")
    return [part if "\n " in part else " ".join(part.split()) for part in written]
