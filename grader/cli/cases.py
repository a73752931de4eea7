"""`grade cases`: the list of cases."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from grader.assignment.case_selection import CaseSelection
from grader.assignment.lab import Lab
from grader.cli.options import case_option, chosen_labs, chosen_selection, lab_option, public_option
from grader.cli.parser import Parser
from grader.cli.terminal import console
from grader.core.errors import ExitCode, UsageError
from grader.judge.score import most_points


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
    labs = chosen_labs(lab)
    asked = [
        selected
        for listed_lab in labs
        if (selected := _selected(listed_lab, case, public_only=public_only, alone=len(labs) == 1))
    ]
    if not asked:
        raise UsageError(f"no case matches '{case}'; `grade cases` lists them all")
    for listed_lab, selection in asked:
        console(160).print(_table(listed_lab, selection))
    return ExitCode.ACCEPTED


def _selected(lab: Lab, pattern: str, *, public_only: bool, alone: bool) -> tuple[Lab, CaseSelection] | None:
    """Return the cases of a lab that match; None where others may have some that do."""
    try:
        return lab, chosen_selection(lab, pattern, None, public_only=public_only)
    except UsageError:
        if alone:
            raise
        return None


def _table(lab: Lab, asked: CaseSelection) -> Table:
    listed, points = asked.cases, f"{lab.rubric.max_score} points"
    if asked.hidden is not None:
        most = most_points(lab.rubric, listed, asked.hidden)
        points = f"{most} of {points}; hidden cases are not in this list"
    table = Table(title=f"{lab.title}: {len(listed)} cases, {points}", title_justify="left")
    for heading in ("case", "rule", "seen by", "title"):
        table.add_column(heading, overflow="fold")
    for case in listed:
        table.add_row(escape(case.name), case.rule, case.visibility.value, escape(case.title))
    return table
