"""`grade cases` and `grade explain`: the list of cases, and the reference's state after each operation of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from grader.assignment.case_selection import CaseSelection
from grader.assignment.lab import Lab
from grader.cli.parser import argument, shared
from grader.cli.selection import Selection, case_named, case_names, lab_option, labs_named, seed_option
from grader.cli.terminal import console
from grader.core.errors import ExitCode, UsageError
from grader.core.model import play
from grader.core.picture import Part, Shape
from grader.judge.score import most_points


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

    case: str = argument("CASE", "A case's name, such as append/three_sharers.", offer=case_names)
    lab: str | None = lab_option()
    seed: int | None = seed_option()


def explain(options: ExplainOptions) -> ExitCode:
    """Show what the reference does in a case: its reply and the whole state after each operation.

    Examples:
        grade cases
        grade explain append/three_sharers
    """
    from grader.report.charts import chart_lines, legend_of
    from grader.result.draw_charts import expected_charts

    lab, case = case_named(labs_named(options.lab), options.case, options.seed)
    shown = console(100)
    shown.print(f"[bold]{escape(case.title)}[/bold]")
    shown.print(escape(f"{case.name} · rule {case.rule} · {'; '.join(case.handout)}"))
    model = lab.model(case.trace)
    if case.generated is not None:
        seeds, length = case.generated.seeds, case.generated.length
        lasts = f"{len(seeds)} random traces of {length} operations (seeds {seeds[0]} to {seeds[-1]})"
        shown.print(f"{lasts}; a report shows the shortest that fails")
    before: list[Part] = []
    for number, step in enumerate(play(model, case.trace), start=1):
        operation, reply = step.operation, step.reply
        answer = f" -> {reply.text}" if reply.text else ""
        by_grader = "  (added by the grader)" if operation.implicit else ""
        shown.print()
        shown.rule(f"[bold]{number}  {escape(str(operation) + answer)}[/bold]{by_grader}", align="left")
        if lab.grammar.operations[operation.name].is_poke:
            shown.print(escape(lab.describe_poke(operation)))
        elif reply.clause:
            shown.print(escape(f"{reply.clause}: {lab.grammar.clauses[reply.clause]}"))
        if operation.comment:
            shown.print(escape(f"# {operation.comment}"))
        state = model.describe(step.record)
        now = list(lab.picture(state))
        for line in lab.draw(state) if lab.draw is not None else _lines(now):
            shown.print(line)
        if changed := _changed(before, now):
            shown.print(f"[bold]changed:[/bold] {escape(changed)}")
        before = now
    for chart in expected_charts(case.trace, lab):
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
