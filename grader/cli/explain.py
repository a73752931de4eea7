"""`grade explain`: the reference's state after each operation of a case, drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape

from grader.cli.options import case_names, chosen_case, chosen_labs, lab_option, seed_option
from grader.cli.parser import Parser
from grader.cli.terminal import console
from grader.core.errors import ExitCode
from grader.core.model import play
from grader.core.picture import Part, Shape
from grader.report.charts import chart_lines, legend_of
from grader.result.draw_charts import expected_charts


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
    shown = console(100)
    shown.print(f"[bold]{escape(selected_case.title)}[/bold]")
    shown.print(escape(f"{selected_case.name} · rule {selected_case.rule} · {'; '.join(selected_case.handout)}"))
    model = selected_lab.model(selected_case.trace)
    if selected_case.generated is not None:
        seeds, length = selected_case.generated.seeds, selected_case.generated.length
        lasts = f"{len(seeds)} random traces of {length} operations (seeds {seeds[0]} to {seeds[-1]})"
        shown.print(f"{lasts}; a report shows the shortest that fails")
    before: list[Part] = []
    for number, step in enumerate(play(model, selected_case.trace), start=1):
        operation, reply = step.operation, step.reply
        answer = f" -> {reply.text}" if reply.text else ""
        by_grader = "  (added by the grader)" if operation.implicit else ""
        shown.print()
        shown.rule(f"[bold]{number}  {escape(str(operation) + answer)}[/bold]{by_grader}", align="left")
        if selected_lab.grammar.operations[operation.name].is_poke:
            shown.print(escape(selected_lab.describe_poke(operation)))
        elif reply.clause:
            shown.print(escape(f"{reply.clause}: {selected_lab.grammar.clauses[reply.clause]}"))
        if operation.comment:
            shown.print(escape(f"# {operation.comment}"))
        state = model.describe(step.record)
        now = list(selected_lab.picture(state))
        for line in selected_lab.draw(state) if selected_lab.draw is not None else _lines(now):
            shown.print(line)
        if changed := _changed(before, now):
            shown.print(f"[bold]changed:[/bold] {escape(changed)}")
        before = now
    for chart in expected_charts(selected_case.trace, selected_lab):
        shown.print()
        shown.rule(f"[bold]{escape(chart.title)}[/bold]", align="left")
        for drawn in chart_lines(chart):
            shown.print(escape("".join(part.text for part in drawn)))
        shown.print(escape(legend_of(chart)))
    return ExitCode.ACCEPTED


def _lines(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the parts of a picture as lines of rich markup."""
    for part in parts:
        if part.shape is Shape.CHAIN:
            cells = next(iter(part.lines.values()), ())
            yield escape(f"{part.title}: {' '.join(cells) or '(empty)'}")
            continue
        if not part.lines:
            continue
        heading = "".join(f"  {column:>12}" for column in part.columns)
        yield escape(f"{part.title:<24}{heading}") if part.columns else f"[bold]{escape(part.title)}[/bold]"
        for (depth, label), cells in part.lines.items():
            yield escape(f"{'  ' * (depth + 1)}{label:<22}" + "".join(f"  {cell:>12}" for cell in cells))


def _changed(before: Sequence[Part], now: Sequence[Part]) -> str:
    """Return the names of the picture's rows that an operation changed, without parts that it added or removed."""
    earlier = {part.title: part for part in before}
    names: dict[str, None] = {}
    for part in now:
        old = earlier.get(part.title)
        for row in {**old.lines, **part.lines} if old is not None else {}:
            if old is not None and old.lines.get(row) != part.lines.get(row):
                names[part.title if part.shape is Shape.CHAIN else row[1]] = None
    return ", ".join(names)
