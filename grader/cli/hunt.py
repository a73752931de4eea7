"""`grade hunt`: search for the smallest trace on which a submission goes wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.lab import Lab
from grader.assignment.source import collect
from grader.cli.options import Detail, case_named, case_names, check_output, lab_named, lab_of_submissions, lab_option
from grader.cli.parser import argument, number, option, path_option
from grader.cli.repro import how_to_run, program_of
from grader.cli.terminal import is_live, notify
from grader.core.case import Case, Number
from grader.core.errors import ExitCode, UsageError
from grader.core.record import Record, write
from grader.core.verdict import Cause

if TYPE_CHECKING:
    from grader.report.page import Page
    from grader.search.player import FailingTrace, TracePlayer
    from reference.oracle import Generator

_SECONDS = 10
_SEED = 1
_LEAST_SECONDS = 20
_MOST_SECONDS = 24 * 3600
_EVERY = 5.0
"""Seconds between two lines of progress, where no line can be redrawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntOptions:
    """The options of `grade hunt`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    lab: str | None = lab_option()
    case: str | None = option(
        "--case",
        "CASE",
        "Begin with this case of the assignment, which fails, and not with random traces.",
        offer=case_names,
    )
    seconds: int = option(
        "--seconds",
        "N",
        f"How long to search for a failing trace. Then as long, or {_LEAST_SECONDS} s, may go into making it small.",
        default=_SECONDS,
        type=number(Number("seconds", 1, _MOST_SECONDS)),
    )
    seed: int | None = option(
        "--seed",
        "NUMBER",
        f"Another seed makes other traces; the same seed makes the same ones [default: {_SEED}].",
        type=number(Number("seed", 0, 1_000_000)),
    )
    output: Path | None = path_option("--output", "FILE", "Write the trace to this file too, as a case.")
    program: Path | None = path_option("--program", "FILE", "Write the trace to this file too, as one program.")

    @property
    def random_seed(self) -> int:
        """The seed of random traces."""
        return _SEED if self.seed is None else self.seed


def hunt(options: HuntOptions) -> ExitCode:
    """Search for calls on which a submission goes wrong, and show the smallest trace of them.

    Random traces are played, no case of the assignment but where --case names one. A short one of those that fail is
    made smaller until no operation can be left out and no value alone be made simpler, or the time is over. It can be
    written as a case file, for `grade explain` and `grade try`, and as a program that needs nothing of the grader. No
    point depends on what it finds. The tool that finds wrong uses of memory looks on only with --case.

    Exit code: 0 if nothing failed, 1 if a trace failed, 2 for a wrong option or path, or what cannot be built.

    Examples:
        grade hunt llm_memory.c
        grade hunt my-homework/ --seconds 60 --seed 2
        grade hunt llm_memory.c --case append/three_sharers
        grade hunt llm_memory.c --output shortest.toml --program shortest.c
    """
    from grader import pipeline

    check_output(options.output, graded=[options.path])
    check_output(options.program, "--program", graded=[options.path])
    if options.output is not None and options.output == options.program:
        raise UsageError(f"--program {options.program}: --output writes to it; write the name of another file")
    if options.case is not None and options.seed is not None:
        raise UsageError("--seed is for random traces, and --case plays none; omit one of them")
    lab = lab_named(options.lab or lab_of_submissions([options.path]))
    generate = generator_of(lab)
    source = collect(options.path, lab.source_name, rule="")
    with _progress(options) as progress:
        search = _search(lab, generate, options, progress)
        failing = pipeline.hunted(source, lab, generate, search, seconds=max(options.seconds, _LEAST_SECONDS))
    if failing is None:
        where = f"in {options.seconds} s of random traces (seed {options.random_seed})"
        unseen = " It did not look for wrong uses of memory; `grade run` does." * (
            "memory_checker" in lab.runtime.options
        )
        print(
            f"Nothing went wrong {where}.{unseen}" if options.case is None else f"Nothing goes wrong in {options.case}."
        )
        return ExitCode.ACCEPTED
    record = pipeline.grade(options.path, lab, [failing.case], source=source)
    cause = record.first_failing_cause
    if cause is None:
        raise UsageError(f"{options.path}: it failed once, and not when the trace was played again; try it once more")
    where = f"a search with seed {options.random_seed}" if options.case is None else options.case
    case = replace(failing.case, title=f"{cause.call} goes wrong (in {where})")
    sys.stdout.write(_report(lab, failing, record, cause))
    if options.output is not None:
        write(options.output, _file(lab, case, cause))
    if options.program is not None:
        outcome = record.outcome(case.name)
        write(options.program, program_of(lab, case, record, outcome))
        sys.stderr.write(f"grade: {options.program}: {how_to_run(lab, record, outcome, options.program)}")
    return ExitCode.NOT_ACCEPTED


def _search(
    lab: Lab, generate: Generator, options: HuntOptions, progress: Callable[[int], None]
) -> Callable[[TracePlayer], FailingTrace | None]:
    """Return what looks for a failing trace: in a case, or in random traces until the time is over."""
    from grader.search.hunt import fails, hunt

    if options.case is not None:
        return partial(fails, case=case_named([lab], options.case, None)[1])

    def search(player: TracePlayer) -> FailingTrace | None:
        started = time.monotonic()
        late = partial(_is_over, started, options.seconds)
        return hunt(player, generate, options.random_seed, late=late, progress=progress)

    return search


def _is_over(started: float, seconds: int) -> bool:
    return time.monotonic() - started > seconds


def generator_of(lab: Lab) -> Generator:
    """Return what makes random traces. Raises `UsageError` where there is nothing."""
    generate = lab.generator()
    if generate is None:
        raise UsageError(f"this copy of the grader cannot play new traces of {lab.name}: its reference is not here")
    return generate


@contextmanager
def _progress(options: HuntOptions) -> Iterator[Callable[[int], None]]:
    """Show how many traces were played: in a line that is redrawn, or in a plain one every few seconds."""
    last = time.monotonic()

    def plain(count: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            notify(f"{count} traces played")

    if not is_live(sys.stderr):
        yield plain
        return
    from rich.console import Console

    limit = f"{options.seconds} s at most"
    what = f"searching for {limit}" if options.case is None else f"playing {options.case}"
    with Console(stderr=True).status(what) as status:
        yield lambda count: status.update(f"{count} traces played, {limit}")


def _report(lab: Lab, failing: FailingTrace, record: Record, cause: Cause) -> str:
    """Return what goes wrong, and the trace with the replies that the handout demands."""
    from grader.report.page import Page
    from grader.report.start_here import focus, start_here

    view = Detail().view()
    page = Page(view.width, colour=view.colour)
    shown = focus(record, view.audience)
    if shown is not None and cause.is_unexplained:  # a trace has no rule of its own
        shown = replace(shown, rule="", clauses=())
    start_here(page, record, shown, view.audience, brief=True)
    write_trace(page, lab, failing)
    if record.build_findings:  # the report speaks of these
        page.labelled("Seen", cause.summary)
        if not cause.is_unexplained:
            page.labelled("Hint", cause.hint)
    return page.text()


def write_trace(page: Page, lab: Lab, failing: FailingTrace) -> None:
    """Write the operations of the smallest trace, with the replies that the handout demands; the last one goes wrong.

    It may be one that the grader adds at the end, as when memory is lost.
    """
    from grader.report.page import bad
    from grader.report.phrases import counted

    case = failing.case
    pairs = zip(failing.operations, case.expected.replies, strict=False)
    lines = [f"{call}{f' -> {reply.text}' if reply.text else ''}" for call, reply in pairs]
    size = counted(len(lines), "operation")
    page.heading(f"{'The smallest trace' if failing.is_smallest else 'A small trace'}: {size}")
    for line in lines[:-1]:
        page.write(f"  {line}", indent=2, hang=6)
    page.write(bad(f"> {lines[-1]}"), indent=2, hang=6)
    for sentence in lab.told_settings(case.trace):
        page.write(sentence)


def _file(lab: Lab, case: Case, cause: Cause) -> str:
    """Return the trace as the text of a case file."""
    from grader.assignment.case_files import case_text

    clauses = lab.grammar.clauses
    place = min(cause.operation, len(case.expected.replies)) - 1
    own = case.expected.replies[place].clause or next(iter(clauses))
    clause = next((key for key, text in clauses.items() if f"{key.partition('/')[0]}: {text}" == cause.clause), own)
    rule, comments = cause.rule, [cause.summary]
    if rule not in lab.grammar.rules:
        why = f"{rule} is judged in every case" if rule else "no known mistake fits"
        rule = lab.grammar.rules[0]
        comments.append(f"{why}; write the rule that this case is for, not {rule}")
    return case_text(case, lab.grammar, title=case.title, clause=clause, rule=rule, comments=comments)
