"""Commands about cases: `grade cases`, `explain`, `try` and `calibrate`.

They list cases, show what the reference does in a case, try cases that a user wrote, and measure what the cases of an
assignment catch.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from grader.assignment.case_files import CaseSelection
from grader.assignment.lab import Lab
from grader.cli.app import argument, flag, number_option, path_option, shared
from grader.cli.options import (
    Selection,
    case_named,
    case_names,
    check_output,
    jobs_option,
    lab_named,
    lab_option,
    labs_named,
    own_cases,
    seed_option,
)
from grader.cli.terminal import columns, console, counted, is_colourful, table
from grader.core.case import Case
from grader.core.errors import ExitCode, UsageError
from grader.core.model import Step, play
from grader.core.picture import PanelShape, Scene, StatePart
from grader.core.record import write
from grader.core.verdict import Judged
from grader.judge.score import most_points

if TYPE_CHECKING:
    from rich.table import Table

    from grader.classroom.calibration import Calibration, CaseTrial, TriedProgram
    from grader.report.page import Page


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
    for each in tables:
        console().print(each)
    return ExitCode.ACCEPTED


def _table(lab: Lab, asked: CaseSelection) -> Table:
    listed, points = asked.cases, f"{lab.rubric.max_score} points"
    if asked.hidden is not None:
        most = most_points(lab.rubric, listed, asked.hidden)
        points = f"{most} of {points}; hidden cases are not in this list"
    rows = table(f"{lab.title}: {len(listed)} cases, {points}", "case", "rule", "seen by", "title")
    for case in listed:
        rows.add_row(escape(case.name), case.rule, case.visibility.value, escape(case.title))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of `grade explain`."""

    case: str = argument("CASE", "A case's name, such as append/three_sharers, or a case file.", offer=case_names)
    lab: str | None = lab_option()
    seed: int | None = seed_option()


def explain(options: ExplainOptions) -> ExitCode:
    """Show what the reference does in a case: its reply and the whole state after each operation.

    A case file of your own is checked too: each claim with which the reference does not agree is listed.

    Examples:
        grade cases
        grade explain append/three_sharers
    """
    from grader.report.page import Page, strong
    from grader.report.trace import chart_lines, legend_of
    from grader.result.draw_states import expected_charts

    lab, case = _case_of(options)
    page = Page(columns(100), colour=is_colourful())
    page.write(strong(case.title))
    rule = f" · rule {case.rule}" if case.rule else ""
    page.write(f"{case.name}{rule} · {'; '.join(case.handout)}")
    for sentence in lab.told_settings(case.trace):
        page.write(sentence)
    model = lab.model(case.trace)
    if case.generated is not None:
        seeds, length = case.generated.seeds, case.generated.length
        lasts = f"{len(seeds)} random traces of {length} operations (seeds {seeds[0]} to {seeds[-1]})"
        page.write(f"{lasts}; a report shows the shortest that fails")
    before: list[StatePart] = []
    for place, step in enumerate(play(model, case.trace), start=1):
        _write_operation(page, lab, place, step)
        now = list(lab.picture(model.describe(step.record)))
        _write_state(page, place, before, now)
        if changed := _changed(before, now):
            page.write(strong("changed:"), f" {changed}")
        before = now
    for chart in expected_charts(case.trace, lab):
        page.heading(chart.title)
        for line in chart_lines(chart):
            page.write(*line)
        page.write(legend_of(chart))
    print(page.text(), end="")
    return ExitCode.ACCEPTED


def _case_of(options: ExplainOptions) -> tuple[Lab, Case]:
    """Return the case that the user named, or the case in the user's own file, and its lab."""
    path = Path(options.case)
    labs = labs_named(options.lab)
    if path.suffix == ".toml" and path.is_file() and not any(path.absolute().is_relative_to(lab.cases) for lab in labs):
        lab, (case,) = own_cases([path], options.lab, options.seed)
        return lab, case
    return case_named(labs, options.case, options.seed)


def _write_operation(page: Page, lab: Lab, number: int, step: Step) -> None:
    """Write a call, what it returns, and why."""
    operation, reply = step.operation, step.reply
    answer = f" -> {reply.text}" if reply.text else ""
    page.heading(f"{number}  {operation}{answer}{'  (added by the grader)' if operation.implicit else ''}")
    if lab.grammar.operations[operation.name].is_poke:
        page.write(lab.describe_poke(operation))
    elif reply.clause:
        page.write(f"{reply.clause}: {lab.grammar.clauses[reply.clause]}")
    if operation.comment:
        page.write(f"# {operation.comment}")


def _write_state(page: Page, number: int, before: Sequence[StatePart], now: Sequence[StatePart]) -> None:
    """Write the state after an operation, as a report draws states."""
    from grader.report.picture import drawn_panels, show_state
    from grader.result.draw_states import Rows, panels_of

    rows = Rows()
    panels = tuple(panels_of(before or now, now, now, rows))
    show_state(page, drawn_panels(Scene(operation=number, panels=panels), rows.stored, many=0))


def _changed(before: Sequence[StatePart], now: Sequence[StatePart]) -> str:
    """Return the names of the rows that an operation changed. Parts that appeared or disappeared do not count."""
    earlier = {part.title: part for part in before}
    names: dict[str, None] = {}
    for part in now:
        old = earlier.get(part.title)
        for row in {**old.lines, **part.lines} if old is not None else {}:
            if old is not None and old.lines.get(row) != part.lines.get(row):
                names[part.title if part.shape is PanelShape.CHAIN else row[1]] = None
    return ", ".join(names)


_MOST_NAMES = 6
_SHOWN = 20
_CLASS = "Try them on the submissions of a class in this store instead of the labelled samples."
_MUTANTS = "The number of mutants: right programs with one small change each."
_SECONDS = "For each mutant that passes all cases: how long to search for a trace that tells it from a right program."
_MATRIX = "Write which program fails which case: a web page if FILE ends in .html, else CSV."
_KNOCK_OUT = "Print instead the points that a right program keeps if one of its calls does nothing, for each call."


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """The options of `grade try`."""

    files: tuple[Path, ...] = argument("FILE...", "The case files, or folders of them.", nargs="+", type=Path)
    lab: str | None = lab_option()
    store_of_class: Path | None = path_option("--class", "STORE", _CLASS)
    run: int | None = number_option("--run", "RUN", "With --class: this run [default: the run that counts].", 1)
    jobs: int = jobs_option()
    seed: int | None = seed_option()


def try_(options: TryOptions) -> ExitCode:
    """Try cases of your own: is each valid and fair, which wrong programs does it catch, which rules does it guard?

    The reference checks every claim of a case. Then the case is played on the labelled samples of the assignment. All
    right samples must pass it; the more wrong samples fail it, the more useful it is. With --class it is played on the
    submissions of a class. Samples that are labelled with wrong uses of memory are also run under the tool that finds
    them. Nothing is stored, and no points change.

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
    """Return the cases that each program fails; None for a program that does not build.

    Samples with a wrong use of memory in their label, and mutants that pass all cases, are also run under the tool that
    finds wrong uses of memory.
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
    """Return the submissions of a run as programs. Raises `UsageError` if the run is of another assignment."""
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
    right, unfair, caught = sum(program.right for program in programs), result.unfair_to, result.caught
    if unfair:
        page.labelled("Unfair", bad(f"{len(unfair)} of {right} right samples fail it"), _names(unfair))
    else:
        page.labelled("Fair", f"all right samples pass it ({right})")
    page.labelled("Catches", strong(f"{len(caught)} wrong samples"), "" if caught else ": it tells nothing")
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
    mutants: int = number_option("--mutants", "N", _MUTANTS, 0, 100_000, default=200)
    seed: int = number_option("--seed", "NUMBER", "Another seed draws other mutants.", 0, 1_000_000, default=1)
    seconds: int = number_option("--seconds", "N", _SECONDS, 1, 3600, default=10)
    jobs: int = jobs_option()
    matrix: Path | None = path_option("--matrix", "FILE", _MATRIX)
    knock_out: bool = flag("--knock-out", _KNOCK_OUT)


def calibrate(options: CalibrateOptions) -> ExitCode:
    """Play the cases on wrong programs and on mutants: which programs do they catch, and which cases are not needed?

    The programs are the labelled samples, and mutants of the right samples. Mutants that pass every case, and samples
    that are labelled with wrong uses of memory, are run again under the tool that finds them. For a mutant that still
    passes every case, random traces are searched for one on which it differs from a right program. Such a trace is a
    missing case.

    Exit code: 0 if every program that is known to be wrong fails a case, 1 if one does not.

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
    no_case = {lab.rubric.judged(Judged.BUILD)}  # no case can show a mistake that only concerns the build
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
    """For each call, print the points of a right program without the call, and those that a fair teacher would give."""
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
    """Return a CSV table with a row for each program, and 1 for each case that it fails."""
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
