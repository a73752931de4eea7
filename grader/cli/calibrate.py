"""`grade try` and `grade calibrate`: cases that users wrote, and whether those of an assignment are enough."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.lab import Lab
from grader.cli.options import Selection, check_output, jobs_option, lab_named, lab_option, own_cases, seed_option
from grader.cli.parser import argument, flag, number, option, path_option, shared
from grader.cli.terminal import columns, counted, is_colourful
from grader.core.case import Case, Number
from grader.core.errors import ExitCode, UsageError
from grader.core.record import write
from grader.core.verdict import Judged

if TYPE_CHECKING:
    from grader.classroom.calibration import Calibration, CaseTrial, TriedProgram
    from grader.report.page import Page

_MOST_NAMES = 6
_SHOWN = 20
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
    from grader.classroom.calibration import samples_of, trials
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
        _write_trial(page, result, built, of_class=of_class)
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
    from grader.classroom.calibration import tried

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
    from grader.classroom.calibration import TriedProgram
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


def _write_trial(page: Page, result: CaseTrial, programs: Sequence[TriedProgram], *, of_class: bool) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """The options of `grade calibrate`."""

    selection: Selection = shared(Selection)
    mutants: int = option(
        "--mutants",
        "N",
        "The number of mutants: right programs with one small change each.",
        default=200,
        type=number(Number("mutants", 0, 100_000)),
    )
    seed: int = option(
        "--seed", "NUMBER", "Another seed draws other mutants.", default=1, type=number(Number("seed", 0, 1_000_000))
    )
    seconds: int = option(
        "--seconds",
        "N",
        "How long to search for a trace that tells a mutant from a right program, for each that passes all cases.",
        default=10,
        type=number(Number("seconds", 1, 3600)),
    )
    jobs: int = jobs_option()
    matrix: Path | None = path_option(
        "--matrix", "FILE", "Write which program fails which case: a web page where FILE ends in .html, else CSV."
    )
    knock_out: bool = flag(
        "--knock-out",
        "Print instead what a right program keeps in which one call does nothing, call by call.",
    )


def calibrate(options: CalibrateOptions) -> ExitCode:
    """Play the cases on wrong programs and on mutants: which do they catch, and which cases does nobody need?

    The programs are the labelled samples and mutants of the right ones. Mutants that pass every case, and samples that
    are labelled for it, are tried again with the tool that finds wrong uses of memory. For a mutant that still passes
    every case random traces are searched for one that tells it from a right program; the trace is the case that is
    missing.

    Exit code: 0 if every program that can be told apart fails a case, 1 if one does not.

    Examples:
        grade calibrate --lab paged_kv --mutants 600
        grade calibrate --lab scheduler --matrix kills.html
        grade calibrate --lab hybrid --knock-out
    """
    if options.knock_out:
        return _knock_out(options)
    from grader.classroom.calibration import Survivor, calibration, mutants_of, samples_of, searched
    from grader.report.page import Page

    check_output(options.matrix, "--matrix")
    lab = lab_named(options.selection.lab)
    cases = options.selection.cases(lab).cases
    samples = samples_of(lab)
    rights = [sample for sample in samples if sample.right]
    if not rights:
        raise UsageError("there are no labelled samples here; write --lab with an assignment that has some")
    no_case = {lab.rubric.judged(Judged.BUILD)}  # a case says nothing of what is only wrong in the build
    wrong = [sample for sample in samples if not sample.right and set(sample.rules) != no_case]
    drawn = mutants_of(lab, rights, options.mutants, options.seed)
    programs = [*wrong, *drawn]
    failed = failed_by(lab, cases, programs, jobs=options.jobs)
    passing = [program for program, names in zip(programs, failed, strict=True) if names == frozenset()]
    mutants = [program for program in passing if program.mutant_of]
    search = searched(lab, mutants, seconds=options.seconds, jobs=options.jobs)
    survivors = [Survivor(program=program) for program in passing if not program.mutant_of]
    survivors += counted(search, len(mutants), "searching")
    result = calibration(programs, failed, survivors)
    page = Page(columns(100), colour=is_colourful())
    _write_calibration(page, lab, cases, result, mutants=len(drawn))
    sys.stdout.write(page.text())
    if options.matrix is not None:
        is_page = options.matrix.suffix.lower() == ".html"
        built = [(program, names) for program, names in zip(programs, failed, strict=True) if names is not None]
        write(options.matrix, _matrix_page(lab, cases, built, result) if is_page else _matrix(cases, built))
    return ExitCode.NOT_ACCEPTED if result.missed else ExitCode.ACCEPTED


def _knock_out(options: CalibrateOptions) -> ExitCode:
    """Print the points of a right program without each of its calls, and those of a fair teacher beside them."""
    from grader.classroom.calibration import knocked_out, scores
    from grader.report.page import Page

    lab = lab_named(options.selection.lab)
    programs = knocked_out(lab)
    if not programs:
        raise UsageError(f"{lab.name} has no submissions/{lab.name}/knock_outs.toml, which says what to leave out")
    points = scores(lab, options.selection.cases(lab).cases, programs, jobs=options.jobs)
    page = Page(columns(100), colour=is_colourful())
    page.heading("A right program in which one call does nothing: its points, and those of a fair teacher")
    widest = max(len(program.call) for program in programs)
    distances = []
    for program, score in zip(programs, counted(points, len(programs), "grading"), strict=True):
        page.crop(f"{program.call:{widest}} {score:>4} {program.teacher:>4}", indent=2)
        distances.append(abs(score - program.teacher))
    page.write(f"Mean distance: {sum(distances) / len(distances):.1f}")
    sys.stdout.write(page.text())
    return ExitCode.ACCEPTED


def _write_calibration(page: Page, lab: Lab, cases: Sequence[Case], result: Calibration, *, mutants: int) -> None:
    from grader.report.page import bad, good, strong

    whole = f"{len(result.killed)} of {len(result.killed) + len(result.missed)} wrong programs fail a case"
    page.write(strong(f"{whole} ({100 * result.share:.1f} %)."))
    same = len(result.survivors) - len(result.missed)
    page.write(
        f"{mutants} mutants; {result.unbuilt} programs do not build; {same} mutants pass every case and every trace of "
        "the search: they count as right."
    )
    page.heading("Rules: cases, and programs that fail one of them")
    of_rule = Counter(case.rule for case in cases)
    rules = {case.name: case.rule for case in cases}
    fails = Counter(rule for names in result.killed.values() for rule in {rules[name] for name in names})
    widest = max(map(len, of_rule))
    most = max(fails.values(), default=1)
    for rule in (rule.id for rule in lab.rubric.rules if rule.id in of_rule):
        bar = "█" * round(40 * fails[rule] / most)
        page.crop(f"{rule:{widest}} {of_rule[rule]:>4} {fails[rule]:>5} ", good(bar), indent=2)
    sole = result.sole_guards(cases)
    if sole:
        page.heading("Rules of which one case alone catches anything")
        for rule, name in sole.items():
            page.write(f"{rule}: {name}", indent=2, hang=4)
    nobody = [case.name for case in cases if not result.kills()[case.name]]
    redundant = [name for name in result.redundant(cases) if name not in nobody]
    _list(page, "Cases that no program fails", nobody)
    _list(page, "Cases whose rule catches the same programs without them", redundant)
    if result.missed:
        page.heading("Programs that none of the cases catches, with a trace that does")
        for survivor in result.missed:
            page.write(bad(survivor.program.name), indent=2, hang=4)
            page.write("; ".join(survivor.trace) or "a labelled sample", indent=4, hang=6)


def _list(page: Page, heading: str, names: Sequence[str]) -> None:
    if names:
        page.heading(f"{heading}: {len(names)}")
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        page.write(", ".join(names[:_SHOWN]) + more, indent=2)


def _matrix(cases: Sequence[Case], built: Sequence[tuple[TriedProgram, frozenset[str]]]) -> str:
    """Return a row for each program, with 1 for each case that it fails."""
    import csv
    import io

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["program", *(case.name for case in cases)])
    rows.writerow(["rule", *(case.rule for case in cases)])
    for program, names in built:
        rows.writerow([program.name, *(int(case.name in names) for case in cases)])
    return text.getvalue()


def _matrix_page(
    lab: Lab, cases: Sequence[Case], built: Sequence[tuple[TriedProgram, frozenset[str]]], result: Calibration
) -> str:
    from grader.report.kill_matrix import MatrixProgram, kill_matrix

    traces = {survivor.program.name: survivor.trace for survivor in result.survivors}
    rows = [
        MatrixProgram(
            name=program.name,
            group=program.mutant_of or next(iter(program.rules), program.name.split("/")[0]),
            mutant=bool(program.mutant_of),
            fails=names,
            trace=traces.get(program.name, ()),
        )
        for program, names in built
    ]
    return kill_matrix(lab.name, cases, rows, sole=result.sole_guards(cases), redundant=result.redundant(cases))
