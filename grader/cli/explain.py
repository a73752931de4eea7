"""`grade explain`: the reference's state after each operation of a case, drawn."""

from __future__ import annotations

from collections.abc import Sequence

from grader.assignment.lab import Lab
from grader.cli.options import case_names, chosen_case, chosen_labs, lab_option, seed_option
from grader.cli.parser import Parser
from grader.cli.terminal import columns, is_colourful
from grader.core.case import Case
from grader.core.errors import ExitCode
from grader.core.model import Step, play
from grader.core.picture import PanelShape, Scene, StatePart
from grader.report.page import Page, strong
from grader.report.picture import drawn_panels
from grader.report.text_picture import chart_lines, legend_of, show_state
from grader.result.draw_charts import expected_charts
from grader.result.draw_states import Rows, panels_of

_INDENT = 4


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    parser.argument("case", metavar="CASE", offer=case_names, help="A case's name, such as append/three_sharers.")
    lab_option(parser)
    seed_option(parser)


def explain(case: str, lab: str | None, seed: int | None) -> ExitCode:
    """Show what the reference does in a case: its reply and the whole state after each operation.

    Examples:
        grade cases
        grade explain append/three_sharers
    """
    selected_lab, selected_case = chosen_case(chosen_labs(lab), case, seed)
    page = Page(columns(100), colour=is_colourful())
    _begin(page, selected_case)
    model = selected_lab.model(selected_case.trace)
    before: list[StatePart] = []
    for number, step in enumerate(play(model, selected_case.trace), start=1):
        _operation(page, selected_lab, number, step)
        now = list(selected_lab.picture(model.describe(step.record)))
        _state(page, number, before, now)
        before = now
    for chart in expected_charts(selected_case.trace, selected_lab):
        page.heading(chart.title)
        for line in chart_lines(chart):
            page.write(*line)
        page.write(legend_of(chart))
    print(page.text(), end="")
    return ExitCode.ACCEPTED


def _begin(page: Page, case: Case) -> None:
    page.write(strong(case.title))
    page.write(f"{case.name} · rule {case.rule} · {'; '.join(case.handout)}")
    if case.generated is not None:
        seeds, length = case.generated.seeds, case.generated.length
        lasts = f"{len(seeds)} random traces of {length} operations (seeds {seeds[0]} to {seeds[-1]})"
        page.write(f"{lasts}; a report shows the shortest that fails")


def _operation(page: Page, lab: Lab, number: int, step: Step) -> None:
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


def _state(page: Page, number: int, before: Sequence[StatePart], now: Sequence[StatePart]) -> None:
    """Write the state after an operation, and which of its rows the operation changed."""
    rows = Rows()
    panels = tuple(panels_of(before or now, now, now, rows))
    show_state(page, drawn_panels(Scene(operation=number, panels=panels), rows.stored, many=0))
    if changed := _changed(before, now):
        page.write(strong("changed:"), f" {changed}")


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
