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
from grader.cli.options import case_named, case_names, lab_named, lab_of_submissions, lab_option
from grader.cli.output import Detail, check_output
from grader.cli.parser import argument, number, option, path_option
from grader.cli.terminal import is_live, notify
from grader.core.case import Case, Number
from grader.core.errors import ExitCode, UsageError
from grader.core.record import Record, write

if TYPE_CHECKING:
    from grader.report.page import Page
    from grader.search.player import FailingTrace, TracePlayer
    from reference.oracle import Generator

_SECONDS = 10
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
    seed: int = option(
        "--seed",
        "NUMBER",
        "Another seed makes other traces; the same seed makes the same ones.",
        default=1,
        type=number(Number("seed", 0, 1_000_000)),
    )
    output: Path | None = path_option("--output", "FILE", "Write the trace to this file too, as a case.")
    program: Path | None = path_option("--program", "FILE", "Write the trace to this file too, as one program.")


def hunt(options: HuntOptions) -> ExitCode:
    """Search for calls on which a submission goes wrong, and show the smallest trace of them.

    Random traces are played, no case of the assignment but where --case names one. The first that fails is made as
    short as it can be: none of its operations can be left out, and no value alone be made smaller. It can be written as
    a case file, for `grade explain` and `grade try`, and as a program that needs nothing of the grader. No point
    depends on what it finds. The tool that finds wrong uses of memory looks on only with --case.

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
    lab = lab_named(options.lab or lab_of_submissions([options.path]))
    generate = generator_of(lab)
    source = collect(options.path, lab.source_name, rule="")
    with _progress(options.seconds) as progress:
        search = _search(lab, generate, options, progress)
        failing = pipeline.hunted(source, lab, generate, search, seconds=max(options.seconds, _LEAST_SECONDS))
    if failing is None:
        where = f"in {options.seconds} s of random traces (seed {options.seed})"
        unseen = " It did not look for wrong uses of memory; `grade run` does." * (
            "memory_checker" in lab.runtime.options
        )
        print(
            f"Nothing went wrong {where}.{unseen}" if options.case is None else f"Nothing goes wrong in {options.case}."
        )
        return ExitCode.ACCEPTED
    record = pipeline.grade(options.path, lab, [failing.case])
    if record.first_cause is None:
        raise UsageError(f"{options.path}: it failed once, and not when the trace was played again; try it once more")
    case = _titled(failing.case, record, options.seed)
    sys.stdout.write(_report(lab, failing, record))
    if options.output is not None:
        write(options.output, _file(lab, case, record))
    if options.program is not None:
        write(options.program, lab.reproduce(case, record.first_cause.operation - 1))
    return ExitCode.NOT_ACCEPTED


def _search(
    lab: Lab, generate: Generator, options: HuntOptions, progress: Callable[[int], None]
) -> Callable[[TracePlayer], FailingTrace | None]:
    """Return what looks for a failing trace: in a case, or in random traces until the time is over."""
    from grader.search.hunt import fails, hunt

    if options.case is not None:
        return partial(fails, case=case_named([lab], options.case, None)[1])
    started = time.monotonic()
    return partial(
        hunt,
        generate=generate,
        seed=options.seed,
        late=lambda: time.monotonic() - started > options.seconds,
        progress=progress,
    )


def generator_of(lab: Lab) -> Generator:
    """Return what makes random traces. Raises `UsageError` where there is nothing."""
    generate = lab.generator()
    if generate is None:
        raise UsageError(f"this copy of the grader cannot play new traces of {lab.name}: its reference is not here")
    return generate


@contextmanager
def _progress(seconds: int) -> Iterator[Callable[[int], None]]:
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

    with Console(stderr=True).status(f"searching for {seconds} s at most") as status:
        yield lambda count: status.update(f"{count} traces played, {seconds} s at most")


def _titled(case: Case, record: Record, seed: int) -> Case:
    cause = record.first_cause
    assert cause is not None
    return replace(case, title=f"{cause.call} goes wrong (in a search with seed {seed})")


def _report(lab: Lab, failing: FailingTrace, record: Record) -> str:
    """Return what goes wrong, and the trace with the replies that the handout demands."""
    from grader.report.page import Page
    from grader.report.start_here import focus, start_here

    view = Detail().view()
    page = Page(view.width, colour=view.colour)
    start_here(page, record, focus(record, view.audience), view.audience, brief=True)
    write_trace(page, lab, failing)
    return page.text()


def write_trace(page: Page, lab: Lab, failing: FailingTrace) -> None:
    """Write the operations of the smallest trace, with the replies that the handout demands; the last one goes wrong.

    It may be one that the grader adds at the end, as when memory is lost.
    """
    from grader.report.page import bad

    case = failing.case
    pairs = zip(failing.operations, case.expected.replies, strict=False)
    lines = [f"{call}{f' -> {reply.text}' if reply.text else ''}" for call, reply in pairs]
    page.heading(f"{'The smallest trace' if failing.is_smallest else 'A small trace'}: {len(lines)} operations")
    for line in lines[:-1]:
        page.write(f"  {line}", indent=2, hang=6)
    page.write(bad(f"> {lines[-1]}"), indent=2, hang=6)
    for sentence in lab.told_settings(case.trace):
        page.write(sentence)


def _file(lab: Lab, case: Case, record: Record) -> str:
    """Return the trace as the text of a case file."""
    from grader.assignment.case_writer import case_text

    cause = record.first_cause
    assert cause is not None
    clauses = lab.grammar.clauses
    place = min(cause.operation, len(case.expected.replies)) - 1
    own = case.expected.replies[place].clause or next(iter(clauses))
    clause = next((key for key, text in clauses.items() if f"{key.partition('/')[0]}: {text}" == cause.clause), own)
    rule, comments = cause.rule, [cause.summary]
    if rule not in lab.grammar.rules:
        rule = lab.grammar.rules[0]
        comments.append(f"{cause.rule} is judged in every case; write the rule that this case is for, not {rule}")
    return case_text(case, lab.grammar, title=case.title, clause=clause, rule=rule, comments=comments)
