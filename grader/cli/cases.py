"""`grade cases`: the list of cases."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from grader.cli.options import case_option, chosen_lab, chosen_selection, lab_option, public_option
from grader.cli.parser import Parser
from grader.cli.terminal import console
from grader.core.errors import ExitCode
from grader.judge.score import most_points

__all__ = ["cases", "options"]


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    lab_option(parser)
    case_option(parser)
    public_option(parser)


def cases(lab: str | None, case: str, *, public_only: bool) -> ExitCode:
    """List the cases: name, rule, who sees them, title.

    Examples:
        grade cases
        grade cases --case 'append/*'
    """
    chosen = chosen_lab(lab)
    asked = chosen_selection(chosen, case, None, public_only=public_only)
    found, points = asked.cases, f"{chosen.rubric.max_score} points"
    if asked.hidden is not None:
        most = most_points(chosen.rubric, found, asked.hidden)
        points = f"{most} of {points}; hidden cases are not in this list"
    table = Table(title=f"{chosen.title}: {len(found)} cases, {points}", title_justify="left")
    for heading in ("case", "rule", "seen by", "title"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(escape(one.name), one.rule, one.visibility.value, escape(one.title))
    console(160).print(table)
    return ExitCode.ACCEPTED
