"""`grade explain`: the reference's state after each operation of a case, drawn."""

from __future__ import annotations

from rich.markup import escape

from grader.cli.options import chosen_case, chosen_lab, lab_option, seed_option
from grader.cli.parser import Parser
from grader.cli.terminal import console
from grader.errors import ExitCode
from reference.model import play

__all__ = ["explain", "options"]


def options(parser: Parser) -> None:
    """Declare them."""
    parser.argument("case", metavar="CASE", help="A case's name, such as append/three_sharers.")
    lab_option(parser)
    seed_option(parser)


def explain(case: str, lab: str, seed: int | None) -> ExitCode:
    """Show what the reference does in a case: pool, tables, ref counts and list after each operation.

    Examples:
        grade cases
        grade explain append/three_sharers
    """
    chosen = chosen_lab(lab)
    found = chosen_case(chosen, case, seed)
    shown = console(100)
    shown.print(f"[bold]{escape(found.title)}[/bold]")
    shown.print(escape(f"{found.name} · rule {found.rule} · {'; '.join(found.handout)}"))
    model = chosen.model(found.trace)
    for number, step in enumerate(play(model, found.trace), start=1):
        operation, reply = step.operation, step.reply
        answer = f" -> {reply.text}" if reply.text else ""
        by_grader = "  (added by the grader)" if operation.implicit else ""
        shown.print()
        shown.rule(f"[bold]{number}  {escape(str(operation) + answer)}[/bold]{by_grader}", align="left")
        if chosen.grammar.operations[operation.name].is_poke:
            shown.print(escape(chosen.describe_poke(operation)))
        elif reply.clause:
            shown.print(escape(f"{reply.clause}: {chosen.grammar.clauses[reply.clause]}"))
        if operation.comment:
            shown.print(escape(f"# {operation.comment}"))
        for line in chosen.draw(model.describe(step.record)):
            shown.print(line)
    return ExitCode.ACCEPTED
