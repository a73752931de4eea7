"""`grade regrade`: an old run's submissions with the current cases, as a run beside the old one."""

from __future__ import annotations

from pathlib import Path

from grader.classroom import batch, fingerprint, overrides as decisions, roster as rosters
from grader.classroom.locks import run_locks
from grader.classroom.run_diff import changes
from grader.classroom.store import open_store
from grader.cli.classes import chosen_run, notify, roster_option, store_option
from grader.cli.differences import show_changes
from grader.cli.grading import Where, grade_all, summary, where_options
from grader.cli.parser import Parser, number
from grader.core.case import Number
from grader.core.errors import ExitCode


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    text = "The run to grade again, not the one that counts."
    parser.argument("run", metavar="RUN", nargs="?", type=number(Number("run", 1)), help=text)
    where_options(parser)
    store_option(parser)
    roster_option(parser)
    text = "Points that people decided: TOML with tables [[override]]; left out: those of the run."
    parser.option("--overrides", metavar="FILE", type=Path, help=text)
    parser.option("--apply", action="store_true", help="From now on the new run is the one that counts.")


def regrade(
    run: int | None,
    *,
    jobs: int,
    executor: str | None,
    store: Path,
    roster: Path | None,
    overrides: Path | None,
    apply: bool,
    require_sandbox: str | None,
) -> ExitCode:
    """Grade a run again, after a case, the rubric or the grader was changed, and show what would change.

    The submissions come from the store, as they were submitted then, and the options are those of the old run. The new
    run is stored beside the old one, which still counts; with --apply, now or later, the new one counts.

    Exit code: as for grade batch.

    Examples:
        grade regrade
        grade regrade --apply
        grade regrade 3 --overrides decided.toml
    """
    people = rosters.load(roster) if roster is not None else None
    with open_store(store) as run_store, run_locks(store) as claimed:
        old = chosen_run(run_store, run)
        plan = fingerprint.grading_plan(batch.settings_of(old))
        plan.require_tools()
        where = Where(jobs=jobs, executor=executor, sandbox=require_sandbox)
        where.require()
        names = [result.name for result in run_store.results(old)]
        decided = run_store.overrides(old)
        if overrides is not None:
            decided = decisions.load(overrides, plan.lab.rubric, names)
        new = batch.replan(run_store, plan, old, overrides=decided, roster=people)
        grade_all(run_store, store, new, where=where, claimed=claimed)
        code = summary(run_store, new)
        if new.id == old.id:
            notify(f"nothing that it depends on has changed since run {old.id}")
            return code
        show_changes(list(changes(run_store, old, new)), old.id, new.id)
        if apply:
            run_store.make_current(new)
            notify(f"run {new.id} counts now, in the place of run {old.id}")
        else:
            notify(f"run {old.id} still counts; to change that: grade diff {old.id} {new.id} --apply")
        return code
