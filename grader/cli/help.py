"""What `--help` shows: the usage, a text, and a box each for arguments, options and commands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from textwrap import indent

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


def show(usage: str, text: str, boxes: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Print the help; `boxes` maps titles to rows of a name and its meaning."""
    console = Console(highlight=False)
    console.print(Padding(Text.assemble(("Usage: ", "bold yellow"), (usage, "bold")), 1))
    for paragraph in paragraphs(text):
        if "\n" in paragraph:
            console.print(Text(indent(paragraph, " ")), soft_wrap=True)  # lines to be copied: not wrapped
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
    """Return the paragraphs of a docstring: each as one line, or unchanged when some of its lines are indented."""
    written = inspect.cleandoc(text).split("\n\n")
    return [part if "\n " in part else " ".join(part.split()) for part in written]
