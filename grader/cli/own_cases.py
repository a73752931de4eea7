"""`grade try`: cases that users wrote, checked by the reference and tried on programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.lab import Lab
from grader.cli.options import jobs_option, lab_option, own_cases, seed_option
from grader.cli.parser import argument, number, option, path_option
from grader.cli.terminal import columns, counted, is_colourful
from grader.core.case import Case, Number
from grader.core.errors import ExitCode, UsageError
from grader.core.verdict import Judged

if TYPE_CHECKING:
    from grader.classroom.own_cases import CaseTrial, TriedProgram
    from grader.report.page import Page

_MOST_NAMES = 6
_CLASS = "Try them on the submissions of a class in this store instead of the labelled samples."


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """The options of `grade try`."""

    files: tuple[Path, ...] = argument("FILE...", "The case files, or folders of them.", nargs="+", type=Path)
    lab: str | None = lab_option()
    store_of_class: Path | None = path_option("--class", "STORE", _CLASS)
    run: int | None = option(
        "--run", "RUN", "With --class: this run [default: the run that counts].", type=number(Number("run", 1))
    )
    jobs: int = jobs_option()
    seed: int | None = seed_option()


def try_(options: TryOptions) -> ExitCode:
    """Try cases of your own: is each valid and fair, which wrong programs does it catch, which rules does it guard?

    The reference checks every claim of a case. Then the case is played on the labelled samples of the assignment: all
    right ones must pass it, and the more wrong ones fail it, the more it tells. With --class it is played on the
    submissions of a class. The tool that finds wrong uses of memory looks at samples that are labelled for it. Nothing
    is stored, and no point changes.

    Exit code: 0 if every case is fair and catches something, 1 if one does not, 2 if a file is wrong.

    Examples:
        grade try my_cases/append_after_two_forks.toml
        grade try my_cases/ --class hw3.sqlite
    """
    from grader.classroom.own_cases import samples_of, trials
    from grader.report.page import Page

    lab, cases = own_cases(options.files, options.lab, options.seed)
    if options.run is not None and options.store_of_class is None:
        raise UsageError("--run works with --class only; write --class STORE too")
    of_class = options.store_of_class is not None
    programs = _class_of(options, lab) if of_class else samples_of(lab)
    page = Page(columns(100), colour=is_colourful())
    if not programs:
        for case in cases:
            _write_head(page, case)
        page.write("There are no labelled samples here, so what it catches is not known.")
        sys.stdout.write(page.text())
        return ExitCode.ACCEPTED
    failed = failed_by(lab, cases, programs, jobs=options.jobs)
    results = trials(cases, programs, failed)
    built = [program for program, names in zip(programs, failed, strict=True) if names is not None]
    for result in results:
        _write(page, result, built, of_class=of_class)
    page.blank()
    page.write(f"Tried on {len(built)} programs; {len(programs) - len(built)} more do not build.")
    sys.stdout.write(page.text())
    good = all(not result.unfair_to and (result.caught or of_class) for result in results)
    return ExitCode.ACCEPTED if good else ExitCode.NOT_ACCEPTED


def failed_by(
    lab: Lab, cases: Sequence[Case], programs: Sequence[TriedProgram], *, jobs: int
) -> list[frozenset[str] | None]:
    """Return the cases that each program fails.

    The tool for memory looks at samples that are labelled for it, and at mutants that fail none without it.
    """
    from grader.classroom.own_cases import tried

    failed = list(counted(tried(lab, cases, programs, jobs=jobs), len(programs), "trying"))
    if "memory_checker" in lab.runtime.options:
        rule = lab.rubric.judged(Judged.MEMORY_ERROR)
        places = [
            place
            for place, (program, names) in enumerate(zip(programs, failed, strict=True))
            if names is not None and (rule in program.rules or (program.mutant_of and not names))
        ]
        checked = tried(lab, cases, [programs[place] for place in places], jobs=jobs, memory_checker=True)
        for place, names in zip(places, counted(checked, len(places), "checking"), strict=True):
            failed[place] = names
    return failed


def _class_of(options: TryOptions, lab: Lab) -> list[TriedProgram]:
    """Return the submissions of a run. Raises `UsageError` when it is of another assignment."""
    from grader.classroom.batch import source_in
    from grader.classroom.own_cases import TriedProgram
    from grader.classroom.store import open_store
    from grader.cli.stored import run_named

    assert options.store_of_class is not None
    with open_store(options.store_of_class, read_only=True) as store:
        run = run_named(store, options.run)
        if run.lab != lab.name:
            raise UsageError(f"run {run.id} of {options.store_of_class} is of {run.lab}, the cases are of {lab.name}")
        return [
            TriedProgram(name=result.name, source=source_in(store, lab, result.entry.source))
            for result in store.results(run)
            if result.entry.source is not None
        ]


def _write_head(page: Page, case: Case) -> None:
    page.heading(f"{case.name}: {case.title}")
    page.write(f"The reference agrees with every claim. {f'Rule {case.rule}.' if case.rule else ''}".strip(), indent=2)


def _write(page: Page, result: CaseTrial, programs: Sequence[TriedProgram], *, of_class: bool) -> None:
    from grader.report.page import bad, strong

    _write_head(page, result.case)
    if of_class:
        fails = f"{len(result.caught)} of {len(programs)} submissions fail it"
        page.labelled("Class", strong(fails), _names(result.caught))
        return
    right = sum(program.right for program in programs)
    if result.unfair_to:
        page.labelled(
            "Unfair", bad(f"{len(result.unfair_to)} of {right} right samples fail it"), _names(result.unfair_to)
        )
    else:
        page.labelled("Fair", f"all right samples pass it ({right})")
    page.labelled(
        "Catches", strong(f"{len(result.caught)} wrong samples"), "" if result.caught else ": it tells nothing"
    )
    if result.guards:
        page.labelled("Guards", ", ".join(f"{rule} {caught} of {count}" for rule, caught, count in result.guards))
    if result.alone:
        page.labelled("Alone", f"{len(result.alone)} that no other of these cases catches", _names(result.alone))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f": {', '.join(names[:_MOST_NAMES])}{more}" if names else ""
