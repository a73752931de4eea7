"""`grade cases` and `grade explain`: the list of cases, and the reference's state after each operation of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from grader.assignment.case_selection import CaseSelection
from grader.assignment.lab import Lab
from grader.cli.options import Selection, case_named, case_names, lab_option, labs_named, own_cases, seed_option
from grader.cli.parser import argument, shared
from grader.cli.terminal import columns, console, is_colourful
from grader.core.case import Case
from grader.core.errors import ExitCode, UsageError
from grader.core.model import Step, play
from grader.core.picture import PanelShape, Scene, StatePart
from grader.judge.score import most_points

if TYPE_CHECKING:
    from grader.report.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesOptions:
    """The options of `grade cases`."""

    selection: Selection = shared(Selection)


def cases(options: CasesOptions) -> ExitCode:
    """List the cases: name, rule, who sees them, title.

    Examples:
        grade cases
        grade cases --case 'append/*'
    """
    labs = labs_named(options.selection.lab)
    tables = []
    for lab in labs:
        try:
            tables.append(_table(lab, options.selection.cases(lab)))
        except UsageError:  # another lab may have cases that fit
            if len(labs) == 1:
                raise
    if not tables:
        raise UsageError(f"no case matches '{options.selection.case}'; `grade cases` lists them all")
    for table in tables:
        console(160).print(table)
    return ExitCode.ACCEPTED


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of `grade explain`."""

    case: str = argument("CASE", "A case's name, such as append/three_sharers, or a case file.", offer=case_names)
    lab: str | None = lab_option()
    seed: int | None = seed_option()


def explain(options: ExplainOptions) -> ExitCode:
    """Show what the reference does in a case: its reply and the whole state after each operation.

    A case file of your own is checked too: whatever the reference does not do as it claims is listed.

    Examples:
        grade cases
        grade explain append/three_sharers
    """
    from grader.report.chart import chart_lines, legend_of
    from grader.report.page import Page, strong
    from grader.result.draw_states import expected_charts

    lab, case = _case_of(options)
    page = Page(columns(100), colour=is_colourful())
    page.write(strong(case.title))
    rule = f" · rule {case.rule}" if case.rule else ""
    page.write(f"{case.name}{rule} · {'; '.join(case.handout)}")
    for sentence in lab.told_settings(case.trace):
        page.write(sentence)
    model = lab.model(case.trace)
    if case.generated is not None:
        seeds, length = case.generated.seeds, case.generated.length
        lasts = f"{len(seeds)} random traces of {length} operations (seeds {seeds[0]} to {seeds[-1]})"
        page.write(f"{lasts}; a report shows the shortest that fails")
    before: list[StatePart] = []
    for number, step in enumerate(play(model, case.trace), start=1):
        _write_operation(page, lab, number, step)
        now = list(lab.picture(model.describe(step.record)))
        _write_state(page, number, before, now)
        if changed := _changed(before, now):
            page.write(strong("changed:"), f" {changed}")
        before = now
    for chart in expected_charts(case.trace, lab):
        page.heading(chart.title)
        for line in chart_lines(chart):
            page.write(*line)
        page.write(legend_of(chart))
    print(page.text(), end="")
    return ExitCode.ACCEPTED


def _case_of(options: ExplainOptions) -> tuple[Lab, Case]:
    """Return the case of that name, or that of a file which is none of the lab's."""
    path = Path(options.case)
    labs = labs_named(options.lab)
    if path.suffix == ".toml" and path.is_file() and not any(path.absolute().is_relative_to(lab.cases) for lab in labs):
        lab, (case,) = own_cases([path], options.lab, options.seed)
        return lab, case
    return case_named(labs, options.case, options.seed)


def _write_operation(page: Page, lab: Lab, number: int, step: Step) -> None:
    """Write a call, what it returns, and why."""
    operation, reply = step.operation, step.reply
    answer = f" -> {reply.text}" if reply.text else ""
    page.heading(f"{number}  {operation}{answer}{'  (added by the grader)' if operation.implicit else ''}")
    if lab.grammar.operations[operation.name].is_poke:
        page.write(lab.describe_poke(operation))
    elif reply.clause:
        page.write(f"{reply.clause}: {lab.grammar.clauses[reply.clause]}")
    if operation.comment:
        page.write(f"# {operation.comment}")


def _write_state(page: Page, number: int, before: Sequence[StatePart], now: Sequence[StatePart]) -> None:
    """Write the state after an operation, as a report draws states."""
    from grader.report.picture import drawn_panels, show_state
    from grader.result.draw_states import Rows, panels_of

    rows = Rows()
    panels = tuple(panels_of(before or now, now, now, rows))
    show_state(page, drawn_panels(Scene(operation=number, panels=panels), rows.stored, many=0))


def _changed(before: Sequence[StatePart], now: Sequence[StatePart]) -> str:
    """Return the names of the picture's rows that an operation changed, without parts that it added or removed."""
    earlier = {part.title: part for part in before}
    names: dict[str, None] = {}
    for part in now:
        old = earlier.get(part.title)
        for row in {**old.lines, **part.lines} if old is not None else {}:
            if old is not None and old.lines.get(row) != part.lines.get(row):
                names[part.title if part.shape is PanelShape.CHAIN else row[1]] = None
    return ", ".join(names)
