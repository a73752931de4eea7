"""`grade cases`: what is asked."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grader.cli.options import case_option, chosen_cases, chosen_lab, lab_option
from grader.cli.parser import Parser
from grader.errors import ExitCode

__all__ = ["cases", "options"]


def options(parser: Parser) -> None:
    """Declare them."""
    lab_option(parser)
    case_option(parser)


def cases(lab: str, case: str) -> ExitCode:
    """List the cases: name, rule, who sees them, title.

    Examples:
        grade cases
        grade cases --case 'append/*'
    """
    chosen = chosen_lab(lab)
    found = chosen_cases(chosen, case, None)
    table = Table(title=f"{chosen.title}: {len(found)} cases, {chosen.rubric.max_score} points", title_justify="left")
    for heading in ("case", "rule", "seen by", "title"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(escape(one.name), one.rule, one.visibility.value, escape(one.title))
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)
    return ExitCode.ACCEPTED
