"""The figures: what is measured for them, how they are computed, and their targets.

CPU time is user + system time of this process and of all children that it waited for, as getrusage reports it. On a
machine with other load the CPU times of two candidates vary together, so their quotient stays stable.

Every figure has a target, except wall times and the stages, which are parts of one grading.

`grade run` from the shell is measured by process and stage, in figures of CPU time that add up to the whole run. The
scripts run unchanged except for the last line of `scripts/grade`: there the interpreter runs `marks.py`. It runs the
grader and notes how much CPU time its parts use.

`pyperf` is not used: it measures one piece of work after the other, by wall time, each in processes of its own. It does
not count the CPU time of children, in which nearly all of a grading is spent.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.assignment.lab import Lab, Settings
from grader.assignment.source import collect
from grader.attempt import Attempt, run
from grader.bench.subject import ROOT, EditedSample, Subject, dynamic, naive, plain
from grader.classroom.workers import ProcessPool, Task, grade, grading_plan
from grader.core.case import Case
from grader.core.errors import DriverError, OptionalStages
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab, present
from grader.runtime.native.runtime import NativeObservations
from grader.search.hunt import checked, load_closure
from grader.search.player import Domain, TracePlayer
from grader.system import process, sandbox
from grader.system.process_tree import Patience

Work = Callable[[], object]
Tell = Callable[[str], None]
"""A function that shows its argument, a description of the work that begins."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Work to measure; an expensive candidate is measured in the first `most` rounds only."""

    name: str
    work: Work
    most: int = 1_000_000


def rounds_of(candidates: Sequence[Candidate], rounds: int, tell: Tell) -> dict[str, list[float]]:
    """Return the CPU seconds of each candidate in each round; each round runs the candidates in another order."""
    taken: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    order = random.Random(0)
    for number in range(rounds):
        due = [candidate for candidate in candidates if number < candidate.most]
        for candidate in order.sample(due, len(due)):
            tell(f"round {number + 1} of {rounds}: {candidate.name}")
            taken[candidate.name].append(cpu_of(candidate.work))
    return taken


def cpu_of(work: Work) -> float:
    """Run `work`; return the CPU seconds of this process and of the children that it waited for."""
    before = _cpu()
    work()
    return _cpu() - before


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass(frozen=True, slots=True)
class Target:
    """The limit that a figure must not exceed, or must at least reach."""

    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value meets the target; a value equal to the limit does."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: its name, its value, the range of single rounds, and the target if it has one."""

    name: str
    value: float
    low: float
    high: float
    target: Target | None = None

    @property
    def held(self) -> bool | None:
        """Whether the target is met; None without a target."""
        return None if self.target is None else self.target.holds(self.value)


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Figures that belong together, under a title."""

    title: str
    figures: tuple[Figure, ...]


def ratio(name: str, above: Sequence[float], below: Sequence[float], *, target: Target | None = None) -> Figure:
    """Return the median of each round's quotient; rounds in which only one of the two was measured do not count."""
    values = [a / b for a, b in zip(above, below, strict=False)]
    return Figure(name=name, value=statistics.median(values), low=min(values), high=max(values), target=target)


def median(name: str, values: Sequence[float]) -> Figure:
    """Return the median of values that are no quotients; it has no target, because it depends on the machine."""
    return Figure(name=name, value=statistics.median(values), low=min(values), high=max(values))


def best(
    name: str, above: Sequence[float], below: Sequence[float], *, target: Target | None = None, minus: float = 0.0
) -> Figure:
    """Return the smallest of `above` divided by the smallest of `below`, less `minus` (1: only the extra part counts).

    Other load on the machine only adds time. Use this for candidates that differ by less than single rounds do.
    """
    rounds = [a / b - minus for a, b in zip(above, below, strict=True)]
    return Figure(
        name=f"{name} (best of {len(rounds)})",
        value=min(above) / min(below) - minus,
        low=min(rounds),
        high=max(rounds),
        target=target,
    )


def worst(name: str, values: Sequence[float], *, target: Target | None = None) -> Figure:
    """Return the largest value; a median would hide a single value that is too large."""
    return Figure(name=name, value=max(values), low=min(values), high=max(values), target=target)


SHELL_RUN, SCRIPTS = "`grade run` from the shell", "scripts/grade and scripts/setup"
START = "interpreter: start"

_PYTHON, _STARTED = 'exec "', '-m grader "$@"'
_MARKS = Path(__file__).with_name("marks.py")
_LEAST = 0.01
"""In units of G: parts that take less are added up in one figure."""


@dataclass(frozen=True, slots=True)
class ShellRun:
    """`scripts/grade run` of a submission, and the CPU time of its runs so far."""

    scripts: Path
    """The folder that contains the script `grade`."""
    submission: Path
    notes: Path
    """The file for the notes of `marks.py`."""
    parts: list[dict[str, float]] = field(default_factory=list)
    """For each run the CPU seconds by part; they do not add up to the whole run."""

    def candidates(self) -> list[Candidate]:
        """Return two candidates for the same rounds: the full run, and a run of only its shell scripts."""
        return [Candidate(SHELL_RUN, self.run), Candidate(SCRIPTS, self.look)]

    def run(self) -> None:
        """Run the scripts and the grader, and note the CPU seconds of the parts."""
        whole = cpu_of(partial(self._shell, _STARTED, f'"{_MARKS}" "{self.notes}" "$@"', (0, 1)))
        self.parts.append(_parts(json.loads(self.notes.read_text(encoding="utf-8")), whole))

    def look(self) -> None:
        """Run only the shell scripts: `scripts/grade` exits where it would start Python."""
        self._shell(_PYTHON, f"exit; {_PYTHON}", (0,))

    def _shell(self, before: str, after: str, codes: tuple[int, ...]) -> None:
        """Run `scripts/grade` with `before` replaced by `after`. Raises `DriverError` for an unexpected exit code."""
        script = self.scripts / "grade"
        text = script.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise DriverError(f"{script} does not have {before} once, so it cannot be measured")
        done = process.run(
            ["sh", "-c", text.replace(before, after), str(script), "run", str(self.submission.absolute())],
            cwd=Path("/"),
            limits=Patience(wall_seconds=300),
            environment={name: os.environ[name] for name in ("PATH", "HOME", "PAGED_KV_VENV") if name in os.environ},
        )
        if done.exit_code not in codes:
            raise DriverError(f"scripts/grade: {done.stderr.decode(errors='replace')}")

    def group(self, taken: Mapping[str, list[float]]) -> FigureGroup:
        """Return figures of the full run and of its parts; `taken` has the CPU seconds of each round by name."""
        unit, scripts = taken["G"], taken[SCRIPTS]
        whole = ratio("the whole / G", taken[SHELL_RUN], unit)
        rows = [
            {SCRIPTS: alone, **parts, START: parts[START] - alone}
            for parts, alone in zip(self.parts[-len(unit) :], scripts, strict=True)
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        lines = {name: ratio(f"{name} / G", [row.get(name, 0.0) for row in rows], unit) for name in names}
        shown = [line for line in lines.values() if line.value >= _LEAST]
        small = [name for name, line in lines.items() if line.value < _LEAST]
        shown += [
            ratio(f"{len(small)} smaller ones / G", [sum(row.get(name, 0.0) for name in small) for row in rows], unit)
        ]
        left = whole.value - sum(line.value for line in shown)
        unexplained = Figure(name="unexplained / G", value=left, low=left, high=left)
        return FigureGroup(f"{SHELL_RUN}, by process and stage", (whole, *shown, unexplained))


def _parts(notes: Mapping[str, Any], whole: float) -> dict[str, float]:
    """Return the CPU seconds of a run by part; `START` includes the shell scripts, which run in the same process."""
    own = notes["own"]
    return {
        START: notes["start"] + notes["before"],
        **own,
        **{f"program {name}": seconds for name, seconds in notes["programs"].items()},
        "interpreter: end": whole - notes["start"] - sum(own.values()) - notes["children"],
    }


GRADING_G, GRADING_V, START_G, RUN_G = Target(4.5), Target(1.4), Target(2), Target(5)
CLOSURE_G, EDIT_G, EDIT_STARTS = Target(3), Target(4), Target(34)
EDIT_STARTS_SLOW = {"offload": Target(97)}
"""The target of a lab where most time goes into deriving states from the logs of programs."""
NAIVE, WORKERS = Target(30, at_least=True), Target(0.85, at_least=True)
SANDBOX, HANG_SECONDS, PROCESSES, PYTHON_STARTS = Target(0.1), Target(3), Target(2), Target(250)
TRANSITIONS_STARTS = Target(200)
"""About two seconds, because the start of an interpreter takes 10 ms."""
PYTHON_STARTS_QUICK = {"block_pool": Target(177), "scheduler": Target(204)}
"""The targets of labs whose calls are short. In hybrid the programs take longer, in offload the derived states."""

_EVERY = 20
"""The naive harness plays every twentieth case, because all cases take a minute."""
_EXPENSIVE_ROUNDS = 3
_GRADINGS = 2
"""Gradings per worker and round: a short round is more likely to meet no other load."""
_ATTACK = "hostile_"
"""Prefix of the names of some samples. They may use all the time of a submission (grader.system.budget), and
grader.tests.trials.hostile_levels measures them."""


def measure(subject: Subject, rounds: int, tell: Tell, *, quick: bool = False) -> list[FigureGroup]:
    """Measure every target; with `quick` only the cost of gradings and starts, Valgrind processes and Python labs."""
    sample = subject.cases[::_EVERY]
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name, sandbox.workspace() as work, _edited() as samples:
        folder = Path(name)
        shell = ShellRun(ROOT / "scripts", subject.path, subject.folder / "notes.json")
        candidates = [*_own(subject, samples), *shell.candidates()]
        if not quick:
            rival = partial(naive, subject, plain(folder, "naive"), dynamic(subject), sample)
            candidates.append(Candidate("naive", rival, _EXPENSIVE_ROUNDS))
        taken, stages = _rounds(subject, candidates, rounds, tell)
        figures += _grading(subject, taken)
        figures += [] if quick else [_against(subject, sample, taken)]
        figures.append(_processes(subject))
        if not quick:
            passes = [
                Candidate("sandboxed", partial(subject.memcheck, work, subject.cases)),
                Candidate("plain", partial(subject.memcheck, plain(folder, "bare"), subject.cases)),
            ]
            both = rounds_of(passes, 2 * rounds, tell)
            extra = "sandbox: extra CPU of memcheck"
            figures.append(best(extra, both["sandboxed"], both["plain"], minus=1.0, target=SANDBOX))
            figures.append(_hanging(subject, tell))
        figures += _python_labs(samples, rounds, tell)
    if not quick and len(os.sched_getaffinity(0)) > 1:
        figures.append(_efficiency(subject.path, subject.lab.name, rounds, tell))
    return [FigureGroup("Targets", tuple(figures)), _seconds(samples), _stages(taken, stages), shell.group(taken)]


@contextmanager
def _edited() -> Iterator[dict[str, EditedSample]]:
    """Yield by name of each lab a sample to edit."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield {lab: EditedSample.of(open_lab(lab), ROOT / "submissions", Path(name)) for lab in present()}


def _seconds(samples: Mapping[str, EditedSample]) -> FigureGroup:
    """Return wall seconds from edit to result; the aim is at most 0.7 s for C and 0.3 s for most Python labs."""
    figures = (median(f"{lab}, wall seconds", sample.seconds) for lab, sample in samples.items())
    return FigureGroup("From an edit to the first result", tuple(figures))


def _own(subject: Subject, samples: Mapping[str, EditedSample]) -> list[Candidate]:
    """Return as candidates the yardsticks G and V (grader.bench.subject) and the parts of the grader itself."""
    return [
        Candidate("G", subject.compile_strictly),
        Candidate("V", subject.empty_under_valgrind),
        Candidate("grading", subject.grade),
        Candidate("closure", subject.walk),
        Candidate("edit", samples[subject.lab.name].edit),
        Candidate("imports", partial(subject.start_and_import, subject.modules(subject.cases[0]))),
    ]


def _rounds(
    subject: Subject, candidates: Sequence[Candidate], rounds: int, tell: Tell
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the CPU seconds of the candidates, and of the grader's stages in the same rounds."""
    stages: dict[str, list[float]] = {}

    def watched() -> None:
        for stage, seconds in subject.grade().cpu_seconds.items():
            stages.setdefault(stage, []).append(seconds)

    tell("warming up")
    watched()  # the driver is compiled once per machine, and modules are imported once per process
    stages.clear()
    work = [replace(candidate, work=watched) if candidate.name == "grading" else candidate for candidate in candidates]
    return rounds_of(work, rounds, tell), stages


def _grading(subject: Subject, taken: dict[str, list[float]]) -> list[Figure]:
    count = len(subject.cases)
    return [
        ratio(f"whole grading, {count} cases / G", taken["grading"], taken["G"], target=GRADING_G),
        ratio(f"whole grading, {count} cases / V", taken["grading"], taken["V"], target=GRADING_V),
        ratio("closure of the small engine / G", taken["closure"], taken["G"], target=CLOSURE_G),
        ratio("interpreter start and imports of `grade run` / G", taken["imports"], taken["G"], target=START_G),
        ratio("`grade run` from the shell / G", taken[SHELL_RUN], taken["G"], target=RUN_G),
        ratio("edit to first result / G", taken["edit"], taken["G"], target=EDIT_G),
    ]


def _stages(taken: dict[str, list[float]], stages: dict[str, list[float]]) -> FigureGroup:
    figures = (ratio(f"{stage} / G", seconds, taken["G"]) for stage, seconds in stages.items() if any(seconds))
    return FigureGroup("Stages of the whole grading", tuple(figures))


def _against(subject: Subject, sample: Sequence[Case], taken: dict[str, list[float]]) -> Figure:
    """Divide the naive harness's time by ours. It played only `sample`, so its time after compiling is scaled up."""
    scale = len(subject.cases) / len(sample)
    whole = [compiled + scale * seconds for compiled, seconds in zip(taken["G"], taken["naive"], strict=False)]
    name = f"naive ({len(sample)} of {len(subject.cases)} cases, scaled) / ours"
    return ratio(name, whole, taken["grading"], target=NAIVE)


def _processes(subject: Subject) -> Figure:
    with sandbox.workspace() as work:
        source = collect(subject.path, subject.lab.source_name, rule="")
        attempt = run(Attempt(lab=subject.lab, source=source, cases=subject.cases, work=work), pipeline.STEPS)
    checked = attempt.observed.checked if isinstance(attempt.observed, NativeObservations) else None
    count = checked.processes if checked is not None else 0
    return worst("Valgrind processes of this submission", [count], target=PROCESSES)


def _hanging(subject: Subject, tell: Tell) -> Figure:
    """Grade the labelled submissions that never end, except attacks; return the figure of the slowest."""
    paths = [path for path in subject.samples(Verdict.TIME_LIMIT_EXCEEDED) if not path.name.startswith(_ATTACK)]
    seconds = []
    for path in paths:
        tell(f"hanging: {path.name}")
        seconds.append(cpu_of(replace(subject, path=path).grade))
    return worst(f"a hanging submission, worst of {len(paths)}: CPU seconds", seconds, target=HANG_SECONDS)


def _python_labs(samples: Mapping[str, EditedSample], rounds: int, tell: Tell) -> list[Figure]:
    """Divide the CPU seconds of Python submissions by those of an interpreter that does nothing.

    Right ones are graded, and checked in the lab's small engines. Wrong ones are edited and graded to the first result.
    """
    names = [name for name in present() if LABS[name].source_name.endswith(".py")]
    start = partial(
        process.run,
        [open_lab(names[0]).runtime.programs[0], "-S", "-c", "pass"],
        cwd=Path("/"),
        limits=Patience(),
        environment={"PATH": os.environ["PATH"]},
    )
    gradings = [Candidate(name, _right_python(open_lab(name))) for name in names]
    edits = [Candidate(f"edit of {name}", samples[name].edit) for name in names]
    with ExitStack() as stack:
        checks = [Candidate(f"transitions of {name}", _small_engines(open_lab(name), stack)) for name in names]
        taken = rounds_of([*gradings, *edits, *checks, Candidate("interpreter", start)], rounds, tell)
    starts = taken["interpreter"]
    return [
        ratio(f"{what.format(name)} / interpreter starts", taken[candidate.format(name)], starts, target=target)
        for what, candidate, usual, special in (
            ("grading of {}", "{}", PYTHON_STARTS, PYTHON_STARTS_QUICK),
            ("edit of {} to result", "edit of {}", EDIT_STARTS, EDIT_STARTS_SLOW),
            ("transitions of {}'s small engines", "transitions of {}", TRANSITIONS_STARTS, {}),
        )
        for name in names
        for target in [special.get(name, usual)]
    ]


def _accepted(lab: Lab) -> Path:
    """Return the first accepted submission of the lab."""
    return min((ROOT / "submissions" / lab.name / Verdict.ACCEPTED).glob(f"*/{lab.source_name}"))


def _small_engines(lab: Lab, stack: ExitStack) -> Callable[[], None]:
    """Return a function that checks a right submission, already built, in all transitions of the small engines."""
    work = stack.enter_context(sandbox.workspace(tools=lab.runtime.programs))
    source = collect(_accepted(lab), lab.source_name, rule="")
    built = lab.runtime.build(work, source.content, beside=source.own_headers, optional=OptionalStages())
    explored = load_closure(lab)
    assert built.program is not None
    assert explored is not None
    player = TracePlayer(lab, work, built.program, lab.rubric.seed, Domain())

    def check() -> None:
        sentence, advice = checked(player, explored)
        assert sentence, advice

    return check


def _right_python(lab: Lab) -> Callable[[], None]:
    """Return a function that grades a right submission of this lab."""
    path = _accepted(lab)
    cases = select_cases(lab, seed=lab.rubric.seed).cases

    def work() -> None:
        record = pipeline.grade(path, lab, cases)
        assert record.verdict is Verdict.ACCEPTED, record.findings

    return work


def _efficiency(path: Path, lab_name: str, rounds: int, tell: Tell) -> Figure:
    """Divide the wall seconds of one worker for N gradings by those of two workers for 2 N gradings."""
    plan = grading_plan(Settings(lab=lab_name))
    source = collect(path, plan.lab.source_name, rule="")
    task = Task(key="", source=source, settings=plan.settings, fingerprint=plan.fingerprint, made_of=plan.made_of)
    alone: list[float] = []
    together: list[float] = []
    with _warm(1, task) as one_worker, _warm(2, task) as two_workers:
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}: two workers")
            for pool, count, seconds in ((one_worker, _GRADINGS, alone), (two_workers, 2 * _GRADINGS, together)):
                before = time.monotonic()
                _grade_all(pool, task, count)
                seconds.append(time.monotonic() - before)
    return best("two workers on two cores, efficiency", alone, together, target=WORKERS)


@contextmanager
def _warm(workers: int, task: Task) -> Iterator[Executor]:
    """Start workers that have everything imported and loaded, as in a running batch."""
    with ProcessPool(workers) as pool:
        _grade_all(pool, task, 2 * workers)
        yield pool


def _grade_all(pool: Executor, task: Task, count: int) -> None:
    """Let the pool grade the task `count` times."""
    for future in [pool.submit(grade, task) for _ in range(count)]:
        done = future.result()
        assert done.stored is not None, done.failure
