"""All commands, gathered into one application."""

from __future__ import annotations

import typer

from grader.cli.cases import cases
from grader.cli.doctor import doctor
from grader.cli.explain import explain
from grader.cli.guard import guarded
from grader.cli.repro import repro
from grader.cli.run import run
from grader.cli.schema import schema

__all__ = ["app"]

app = typer.Typer(
    help="Grade paged KV-cache memory managers: what is right, what is wrong, why, and how many points that is.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options() -> None:
    """Grade paged KV-cache memory managers: what is right, what is wrong, why, and how many points that is."""


for command in (run, cases, explain, repro, doctor, schema):
    app.command()(guarded(command))
