"""`grade hunt`, `repro`, `mend`: the smallest trace that fails, a failing case as a program, the smallest repair."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from grader import pipeline
from grader.assignment.lab import Lab, Settings
from grader.assignment.source import collect
from grader.cli.app import argument, number_option, option, path_option
from grader.cli.options import (
    Detail,
    Selection,
    case_named,
    case_names,
    check_format,
    check_options,
    check_output,
    jobs_option,
    lab_named,
    lab_of_submissions,
    lab_option,
    memory_checker_option,
    public_option,
    seed_option,
)
from grader.cli.terminal import counted, is_live, notify
from grader.core.case import Case
from grader.core.errors import ExitCode, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record, write
from grader.core.verdict import Cause, Finding, Outcome, Tool
from grader.report.phrases import result_of
from grader.runtime.protocol import GradingOptions

if TYPE_CHECKING:
    from grader.classroom.mending import Mending
    from grader.classroom.store import Run, Store
    from grader.classroom.stored_result import Result
    from grader.report.page import Page
    from grader.search.player import FailingTrace, TracePlayer
    from reference.oracle import Generator


_WIDEST = 100
"""The longest line of a comment in a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions:
    """The options of `grade repro`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    case: str | None = argument("CASE", "A case [default: the first one in the report].", nargs="?", offer=case_names)
    lab: str | None = lab_option()
    public_only: bool = public_option()
    output: Path | None = path_option("--output", "FILE", "Write the program to this file instead of printing it.")
    seed: int | None = seed_option()
    without_memory_checker: bool = memory_checker_option()


def repro(options: ReproOptions) -> ExitCode:
    """Write a failing case as one program that runs without the grader, in the language of the submission.

    It makes the calls up to the one that went wrong, and says what the handout demands and what came instead. How to
    run it is printed to stderr. A program in C has its own malloc, which stops it at the line that uses memory wrongly.
    A comment at the end says what only the grader can see, such as calls of a device whose order
    is not defined.

    Examples:
        grade repro llm_memory.c > repro.c
        grade repro my-homework/ append/three_sharers --output repro.c
    """
    check_output(options.output, graded=[options.path])
    lab = lab_named(options.lab or lab_of_submissions([options.path]))
    if options.case is None:
        cases = Selection(public_only=options.public_only).cases(lab, options.seed).cases
    else:
        cases = (case_named([lab], options.case, options.seed)[1],)
    how = GradingOptions(seed=options.seed, memory_checker=not options.without_memory_checker)
    random = any(case.generated is not None for case in cases)  # only the picture has the failing trace
    drawing = Drawing.ALL if random else Drawing.NOTHING
    record = pipeline.grade(options.path, lab, cases, check_options(lab, how), draw=drawing)
    failing = _failing(record)
    if failing is None:
        sys.stderr.write("grade: nothing fails here, so there is nothing to reproduce\n")
        return ExitCode.ACCEPTED
    outcome, operation = failing
    case = next(case for case in cases if case.name == outcome.case)
    text = program_of(lab, case, record, outcome)
    if options.output is not None:
        write(options.output, text)
    else:
        sys.stdout.write(text)
    sys.stderr.write(
        f"grade: {outcome.case} up to operation {operation}; {how_to_run(lab, record, outcome, options.output)}"
    )
    return ExitCode.ACCEPTED


def program_of(lab: Lab, case: Case, record: Record, outcome: Outcome) -> str:
    """Return a failing case as a program, with a comment on what only the grader can see.

    If the record's picture of the case has the program, return this one: it has the trace of a failing random case.
    """
    lines = next((picture.program for picture in record.pictures if picture.case == outcome.case), ())
    text = "".join(f"{line}\n" for line in lines) or lab.reproduce(case, max(record.bad_operation(outcome), 1) - 1)
    unseen = _unseen(lab, record.first_finding(outcome))
    comment = f"The grader saw this, but these calls alone do not show it: {unseen}" if unseen else ""
    return text + "".join(f"    # {line}\n" for line in wrap(comment, _WIDEST))


def how_to_run(lab: Lab, record: Record, outcome: Outcome, file: Path | None) -> str:
    """Return lines that say how to run the program of a failing case, and why it may report nothing."""
    command = lab.reproduce_command
    if file is not None:
        command = re.sub(r"\brepro\.\w+", lambda _: shlex.quote(str(file)), command)
    text = f"run it with\n  {command}\n"
    if _unseen(lab, record.first_finding(outcome)):
        text += "The program passes: only the grader sees what went wrong; a comment at its end says what.\n"
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    if checker is not None and all(finding.tool is checker.tool for finding in record.findings_of(outcome)):
        text += f"Only {checker.name} saw it; if the program reports nothing, run it as\n"
        text += f"  {checker.name.lower()} ./repro\n"
    return text


def _unseen(lab: Lab, first: Finding | None) -> str:
    """Return the message of the first finding if only the grader can see what is wrong; else ""."""
    return first.message if first is not None and first.kind in lab.derived else ""


def _failing(record: Record) -> tuple[Outcome, int] | None:
    """Return the plainest case of the first cause and its first bad operation, from 1; None if no case fails.

    Raises `UsageError` if no case was played.
    """
    if not record.outcomes:
        raise UsageError(
            f"{record.submission.name}: {result_of(record)}, so no case can be played; `grade run` shows why"
        )
    outcomes = [record.outcome(case) for cause in record.causes for case in cause.cases[:1]]
    return (outcomes[0], max(record.bad_operation(outcomes[0]), 1)) if outcomes else None


_SEED = 1
_LEAST_SECONDS = 20
_CASE = "Begin with this failing case of the assignment instead of random traces."
_SEARCH = f"How long to search for a failing trace. Making it small may take as long again, or {_LEAST_SECONDS} s."
_OTHER_SEED = f"Another seed makes other traces; the same seed makes the same traces [default: {_SEED}]."
_EVERY = 5.0
"""Seconds between two lines of progress, if the terminal cannot redraw a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntOptions:
    """The options of `grade hunt`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    lab: str | None = lab_option()
    case: str | None = option("--case", "CASE", _CASE, offer=case_names)
    seconds: int = number_option("--seconds", "N", _SEARCH, 1, 24 * 3600, default=10)
    seed: int | None = number_option("--seed", "NUMBER", _OTHER_SEED, 0, 1_000_000)
    output: Path | None = path_option("--output", "FILE", "Write the trace to this file too, as a case.")
    program: Path | None = path_option("--program", "FILE", "Write the trace to this file too, as one program.")

    @property
    def random_seed(self) -> int:
        """The seed of random traces."""
        return _SEED if self.seed is None else self.seed


def hunt(options: HuntOptions) -> ExitCode:
    """Search for calls on which a submission goes wrong, and show the smallest trace of them.

    Random traces are played, or the case of --case. A short failing trace is made smaller until no operation can be
    left out and no single value can be made simpler, or until the time is over. It can be written as a case file, for
    `grade explain` and `grade try`, and as a program that runs without the grader. No points depend on the result. The
    tool that finds wrong uses of memory is used only with --case.

    Exit code: 0 if nothing failed, 1 if a trace failed, 2 for a wrong option or path, or if it cannot be built.

    Examples:
        grade hunt llm_memory.c
        grade hunt my-homework/ --seconds 60 --seed 2
        grade hunt llm_memory.c --case append/three_sharers
        grade hunt llm_memory.c --output shortest.toml --program shortest.c
    """
    check_output(options.output, graded=[options.path])
    check_output(options.program, "--program", graded=[options.path])
    if options.output is not None and options.output == options.program:
        raise UsageError(f"--program {options.program}: --output writes to it; write the name of another file")
    if options.case is not None and options.seed is not None:
        raise UsageError("--seed is for random traces, and --case plays none; omit one of them")
    lab = lab_named(options.lab or lab_of_submissions([options.path]))
    generate = generator_of(lab)
    source = collect(options.path, lab.source_name, rule="")
    what = "searching" if options.case is None else f"playing {options.case}"
    with counting(what, "traces played", f"{options.seconds} s at most") as progress:
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
    """Return a function that searches for a failing trace: in a case, or in random traces until the time is over."""
    from grader.search.hunt import fails, hunt

    if options.case is not None:
        return partial(fails, case=case_named([lab], options.case, None)[1])

    def search(player: TracePlayer) -> FailingTrace | None:
        end = time.monotonic() + options.seconds
        return hunt(player, generate, options.random_seed, late=lambda: time.monotonic() > end, progress=progress)

    return search


def generator_of(lab: Lab) -> Generator:
    """Return the generator of random traces. Raises `UsageError` if this copy of the grader has none."""
    generate = lab.generator()
    if generate is None:
        raise UsageError(f"this copy of the grader cannot play new traces of {lab.name}: its reference is not here")
    return generate


@contextmanager
def counting(what: str, counted: str, limit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows a count: in a line that is redrawn, or in a new line every few seconds.

    `what` is the work, such as "searching"; `counted` names what is counted, such as "traces played"; `limit` is the
    time limit in words.
    """
    last = time.monotonic()

    def plain(count: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            notify(f"{count} {counted}")

    if not is_live(sys.stderr):
        yield plain
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what}, {limit}") as status:
        yield lambda count: status.update(f"{count} {counted}, {limit}")


def _report(lab: Lab, failing: FailingTrace, record: Record, cause: Cause) -> str:
    """Return what goes wrong, and the trace with the replies that the handout demands."""
    from grader.report.page import Page
    from grader.report.start_here import focus, start_here

    view = Detail().view()
    page = Page(view.width, colour=view.colour)
    shown = focus(record, view.audience)
    if shown is not None and cause.is_unexplained:  # a trace has no rule
        shown = replace(shown, rule="", clauses=())
    start_here(page, record, shown, view.audience, brief=True)
    write_trace(page, lab, failing)
    if record.build_findings:  # `start_here` shows these instead of the cause
        page.labelled("Seen", cause.summary)
        if not cause.is_unexplained:
            page.labelled("Hint", cause.hint)
    return page.text()


def write_trace(page: Page, lab: Lab, failing: FailingTrace) -> None:
    """Write the operations of the smallest trace, with the replies that the handout demands. The last call goes wrong.

    The grader may have added the last operation, for example if memory is lost.
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


_PARSED = "this needs a clone of the grader and tree-sitter, which parses programs; run scripts/setup --mutants"
_FORMATS = ("text", "json")
_MENDING = "How long to look for a change."
_CHANGES = "How many places may be changed, one after the other."


@dataclass(frozen=True, slots=True, kw_only=True)
class MendOptions:
    """The options of `grade mend`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    lab: str | None = lab_option()
    seconds: int = number_option("--seconds", "N", _MENDING, 1, 24 * 3600, default=60)
    changes: int = number_option("--changes", "N", _CHANGES, 1, 2, default=1)
    format: str = option("--format", "FORMAT", "text or json.", default="text", offer=lambda: _FORMATS)
    jobs: int = jobs_option()


def mend(options: MendOptions) -> ExitCode:
    """Look for the smallest change with which a submission is right: every case passes, and a search finds nothing.

    Prints the change as a unified diff, the points before and after, and the sentence of the handout that was broken.
    If no change makes the submission right, the one that wins most points is printed. This is for instructors who
    weigh an appeal: nothing of it is in any report, and students' bundles do not have this command.

    Exit code: 0 if the submission is right or a change makes it right, 1 if none was found, 2 for a wrong option or
    path.

    Examples:
        grade mend submissions/jane
        grade mend llm_memory.c --seconds 300 --changes 2
        grade mend scheduler.py --format json
    """
    check_format(options.format, _FORMATS)
    lab = lab_named(options.lab or lab_of_submissions([options.path]))
    cases = Selection().cases(lab, None).cases
    source = collect(options.path, lab.source_name, rule="")
    try:
        from grader.classroom.mending import mended

        with counting("mending", "changes tried", f"{options.seconds} s at most") as progress:
            mending = mended(
                source,
                lab,
                cases,
                seconds=options.seconds,
                changes=options.changes,
                jobs=options.jobs,
                progress=progress,
            )
    except ImportError as error:
        raise UsageError(_PARSED) from error
    sys.stdout.write(_as_json(mending) if options.format == "json" else mending_text(mending))
    is_right = mending.distance is not None or mending.before == mending.most
    return ExitCode.ACCEPTED if is_right else ExitCode.NOT_ACCEPTED


def _as_json(mending: Mending) -> str:
    from grader.report.document import as_json

    return str(as_json(asdict(mending)))


def mending_text(mending: Mending) -> str:
    """Return the change, the points with it, and the sentence of the handout that was broken."""
    from grader.report.page import Page, bad, good, strong

    view = Detail().view()
    page = Page(view.width, colour=view.colour)
    if mending.why_not:
        page.write(f"{mending.before} of {mending.most} points: {mending.why_not}.")
        return page.text()
    if mending.distance is None:
        won = f"; the best of them wins {mending.after - mending.before} points:" if mending.diff else "."
        page.write(strong(f"No small change makes it right ({mending.tried} tried){won}"))
    else:
        count = "One change makes" if mending.distance == 1 else f"{mending.distance} changes make"
        page.write(strong(f"{count} it right: {mending.before} points without, {mending.after} with it."))
    for line in mending.diff:
        page.crop({"+": good, "-": bad}.get(line[:1], str)(line), indent=2)
    if mending.clause:
        page.labelled("Broken", mending.clause)
    return page.text()


def mendings_of(store: Store, run: Run, results: Sequence[Result], seconds: int) -> dict[str, Mending]:
    """Return the `Mending` of each graded submission, by name (see `mended_once`).

    Every new result is stored at once, so that Ctrl-C loses nothing.
    """
    try:
        from grader.classroom.batch import settings_of
        from grader.classroom.mending import mended_once
    except ImportError as error:
        raise UsageError(_PARSED) from error
    lab = lab_named(run.lab)
    if settings_of(run) != Settings(lab=run.lab):
        raise UsageError(f"--mend plays all cases, but run {run.id} was graded with options such as --case or --allow")
    cases = Selection().cases(lab, None).cases
    graded = [result for result in results if result.is_graded and result.entry.source is not None]
    mend_it = partial(mended_once, store, lab=lab, cases=cases, seconds=seconds, jobs=len(os.sched_getaffinity(0)))
    try:
        mendings = list(counted(map(mend_it, graded), len(graded), "mending"))
    except ImportError as error:
        raise UsageError(_PARSED) from error
    return {result.name: mending for result, mending in zip(graded, mendings, strict=True)}


def summary_of(mendings: Iterable[Mending], seconds: int) -> str:
    """Return one sentence for the page of a class."""
    failing = [mending for mending in mendings if mending.before != mending.most]
    near, looked = sum(mending.distance == 1 for mending in failing), sum(not mending.why_not for mending in failing)
    return (
        f"{near} of {len(failing)} failing submissions are one change from right; for {looked - near} no such change "
        f"was found in {seconds} s each, and {len(failing) - looked} are unfinished or cannot be built."
    )
