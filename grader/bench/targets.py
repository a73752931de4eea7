"""The figures: the candidates that they need, and how they are computed from the measurements.

Every figure but the stages has a target. The stages are the parts of the whole grading.

`grade run` from the shell is measured by process and stage, in lines of CPU time that add up to the whole. The scripts
run as they are, but for the last line of `scripts/grade`: there the interpreter runs `marks.py`, which runs the grader
and notes what its parts use.
"""

from __future__ import annotations

import json
import os
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
from grader.assignment.case_selection import select_cases
from grader.assignment.lab import Lab, Settings
from grader.assignment.source import collect
from grader.attempt import Attempt, run
from grader.bench.figures import (
    Candidate,
    Figure,
    FigureGroup,
    Target,
    Tell,
    best,
    cpu_of,
    median,
    ratio,
    rounds_of,
    worst,
)
from grader.bench.subject import ROOT, EditedSample, Subject, dynamic, naive, plain
from grader.classroom.fingerprint import grading_plan
from grader.classroom.workers import ProcessPool, Task, grade
from grader.core.case import Case
from grader.core.errors import DriverError
from grader.core.optional_stages import OptionalStages
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab, present
from grader.runtime.native.runtime import NativeObservations
from grader.search.beyond import checked, load_closure
from grader.search.player import Domain, TracePlayer
from grader.system import process, sandbox
from grader.system.process import Patience

SHELL_RUN, SCRIPTS = "`grade run` from the shell", "scripts/grade and scripts/setup"
START = "interpreter: start"

_PYTHON, _STARTED = 'exec "', '-m grader "$@"'
_MARKS = Path(__file__).with_name("marks.py")
_LEAST = 0.01
"""G: what takes less is added up in one line."""


@dataclass(frozen=True, slots=True)
class ShellRun:
    """`scripts/grade run` of a submission, and what its runs have used so far."""

    scripts: Path
    """The folder of scripts."""
    submission: Path
    notes: Path
    """A file to write to."""
    parts: list[dict[str, float]] = field(default_factory=list)
    """Of each run the CPU seconds by part; what is left over is missing."""

    def candidates(self) -> list[Candidate]:
        """Return the whole, and the scripts alone, for the same rounds."""
        return [Candidate(SHELL_RUN, self.run), Candidate(SCRIPTS, self.look)]

    def run(self) -> None:
        """Grade."""
        whole = cpu_of(partial(self._shell, _STARTED, f'"{_MARKS}" "{self.notes}" "$@"', (0, 1)))
        self.parts.append(_parts(json.loads(self.notes.read_text(encoding="utf-8")), whole))

    def look(self) -> None:
        """Run the scripts up to the start of the interpreter."""
        self._shell(_PYTHON, f"exit; {_PYTHON}", (0,))

    def _shell(self, before: str, after: str, codes: tuple[int, ...]) -> None:
        """Run `scripts/grade` with these words replaced. Raises `DriverError` when it does not end as it must."""
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
        """Return the whole and its lines; `taken` has the CPU seconds of G and of the candidates in each round."""
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
    """Return the CPU seconds of a run by part; the start includes the scripts, which ran in the same process before."""
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
"""Of a lab whose states the grader derives of what programs log, which takes most of the time."""
NAIVE, WORKERS = Target(30, at_least=True), Target(0.85, at_least=True)
SANDBOX, HANG_SECONDS, PROCESSES, PYTHON_STARTS = Target(0.1), Target(3), Target(2), Target(250)
TRANSITIONS_STARTS = Target(200)
"""Two seconds, where an interpreter that does nothing takes 10 ms."""
PYTHON_STARTS_QUICK = {"block_pool": Target(177), "scheduler": Target(204)}
"""Of labs whose calls are short; the others' programs and the derived states of offload take longer."""

_EVERY = 20
"""The naive harness plays every twentieth case, because all cases take a minute."""
_EXPENSIVE_ROUNDS = 3
_GRADINGS = 2
"""Gradings per worker and round: a short round is more likely to meet no other load."""
_ATTACK = "hostile_"
"""Prefix of the names of some samples. They may use all the time of a submission (grader.system.budget), and
grader.tests.trials.hostile_levels measures them."""


def quick(subject: Subject, rounds: int, tell: Tell) -> list[FigureGroup]:
    """Measure the cost of grading and of starting, the Valgrind processes, and the Python labs."""
    with _edited() as samples:
        shell = _shell(subject)
        taken, stages = _rounds(subject, [*_own(subject, samples), *shell.candidates()], rounds, tell)
        figures = [*_grading(subject, taken), _processes(subject), *_python_labs(samples, rounds, tell)]
    return [FigureGroup("Targets", tuple(figures)), _seconds(samples), _stages(taken, stages), shell.group(taken)]


def full(subject: Subject, rounds: int, tell: Tell) -> list[FigureGroup]:
    """Measure every target."""
    sample = subject.cases[::_EVERY]
    with tempfile.TemporaryDirectory(prefix="bench-") as name, sandbox.workspace() as work, _edited() as samples:
        folder = Path(name)
        rival = partial(naive, subject, plain(folder, "naive"), dynamic(subject), sample)
        shell = _shell(subject)
        candidates = [*_own(subject, samples), *shell.candidates(), Candidate("naive", rival, _EXPENSIVE_ROUNDS)]
        taken, stages = _rounds(subject, candidates, rounds, tell)
        passes = [
            Candidate("sandboxed", partial(subject.memcheck, work, subject.cases)),
            Candidate("plain", partial(subject.memcheck, plain(folder, "bare"), subject.cases)),
        ]
        checked = rounds_of(passes, 2 * rounds, tell)
        python_labs = _python_labs(samples, rounds, tell)
    figures = [
        *_grading(subject, taken),
        _against(subject, sample, taken),
        _processes(subject),
        best("sandbox: extra CPU of memcheck", checked["sandboxed"], checked["plain"], minus=1.0, target=SANDBOX),
        _hanging(subject, tell),
        *python_labs,
    ]
    if len(os.sched_getaffinity(0)) > 1:
        figures.append(_efficiency(subject.path, subject.lab.name, rounds, tell))
    return [FigureGroup("Targets", tuple(figures)), _seconds(samples), _stages(taken, stages), shell.group(taken)]


def _shell(subject: Subject) -> ShellRun:
    return ShellRun(ROOT / "scripts", subject.path, subject.folder / "notes.json")


@contextmanager
def _edited() -> Iterator[dict[str, EditedSample]]:
    """Yield a sample of each lab that is edited, by the lab's name."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield {lab: EditedSample.of(open_lab(lab), ROOT / "submissions", Path(name)) for lab in present()}


def _seconds(samples: Mapping[str, EditedSample]) -> FigureGroup:
    """The time by the clock: on a quiet machine at most 0.7 s for C, and 0.3 s for Python without derived states."""
    figures = (median(f"{lab}, wall seconds", sample.seconds) for lab, sample in samples.items())
    return FigureGroup("From an edit to the first result", tuple(figures))


def _own(subject: Subject, samples: Mapping[str, EditedSample]) -> list[Candidate]:
    """The yardsticks and the grader itself."""
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
    """Scale the rival, which played a sample of the cases: it compiles once, and the rest grows with the cases."""
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
    """Measure the labelled submissions that never end, except attacks."""
    paths = [path for path in subject.samples(Verdict.TIME_LIMIT_EXCEEDED) if not path.name.startswith(_ATTACK)]
    seconds = []
    for path in paths:
        tell(f"hanging: {path.name}")
        seconds.append(cpu_of(replace(subject, path=path).grade))
    return worst(f"a hanging submission, worst of {len(paths)}: CPU seconds", seconds, target=HANG_SECONDS)


def _python_labs(samples: Mapping[str, EditedSample], rounds: int, tell: Tell) -> list[Figure]:
    """Divide the CPU seconds of Python submissions by those of an interpreter that does nothing.

    Right ones are graded, and checked in their small engines; wrong ones are edited up to the first result.
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
    per_start = partial(ratio, below=starts)
    return [
        *(
            per_start(
                f"grading of {name} / interpreter starts",
                taken[name],
                target=PYTHON_STARTS_QUICK.get(name, PYTHON_STARTS),
            )
            for name in names
        ),
        *(
            per_start(
                f"edit of {name} to result / interpreter starts",
                taken[f"edit of {name}"],
                target=EDIT_STARTS_SLOW.get(name, EDIT_STARTS),
            )
            for name in names
        ),
        *(
            per_start(
                f"transitions of {name}'s small engines / interpreter starts",
                taken[f"transitions of {name}"],
                target=TRANSITIONS_STARTS,
            )
            for name in names
        ),
    ]


def _accepted(lab: Lab) -> Path:
    """The first submission with that label."""
    return min((ROOT / "submissions" / lab.name / Verdict.ACCEPTED).glob(f"*/{lab.source_name}"))


def _small_engines(lab: Lab, stack: ExitStack) -> Callable[[], None]:
    """Return the check of a right submission, which is built already, in the transitions of the lab's small engines."""
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
    """Return the grading of a right submission of this lab."""
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
