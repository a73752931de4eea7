"""The figures: the candidates that they need, and how they are computed from the measurements."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from grader import pipeline
from grader.attempt import Attempt
from grader.bench.figures import Figure, Section, Target, best, differences, ratio, worst
from grader.bench.measure import Candidate, Tell, cpu_of, rounds_of, wall_of
from grader.bench.operations import Operations, replayed_operations
from grader.bench.python_lab import python_labs
from grader.bench.rivals import dynamic, naive, plain, pytest_files, pytest_run
from grader.bench.subject import Subject
from grader.bench.traces import on_pool
from grader.bench.workers import efficiency
from grader.core.case import Case
from grader.core.verdict import Verdict
from grader.runtime.native.runtime import NativeObservations
from grader.system import sandbox

GRADING_G, GRADING_V, START_G, RUN_G = Target(4.5), Target(1.4), Target(2), Target(5)
NAIVE, WORKERS = Target(30, at_least=True), Target(0.85, at_least=True)
SANDBOX, HANG_SECONDS, PROCESSES, MOST_PROCESSES = Target(0.1), Target(3), Target(2), Target(4)
PYTHON_STARTS = Target(250)
"""The design's targets, section "Now"."""

_EVERY = 20
"""The naive harness plays every twentieth case, because all cases take a minute."""
_DEAR_ROUNDS = 3
_POOLS = (64, 256, 1024, 4096)
_ATTACK = "hostile_"
"""Prefix of the names of some samples. They may use all the time of a submission (grader.system.budget), and
grader.tests.trials.hostile_levels measures them."""


def quick(subject: Subject, rounds: int, tell: Tell) -> list[Section]:
    """Measure the cost of grading and of starting, the Valgrind processes, and the speed of the comparison."""
    operations = replayed_operations(subject, tell)
    taken, stages = _rounds(subject, _own(subject, operations), rounds, tell)
    python = python_labs(rounds, tell, target=PYTHON_STARTS)
    targets = [*_grading(subject, taken), _processes(subject), *_operations(operations, taken), *python]
    return [Section("Targets", tuple(targets)), _parts(taken, stages)]


def full(subject: Subject, rounds: int, tell: Tell) -> list[Section]:
    """Measure every target of the design, the rivals, and the growth of the cost."""
    sample = subject.cases[::_EVERY]
    with tempfile.TemporaryDirectory(prefix="bench-") as name, sandbox.workspace() as work:
        folder = Path(name)
        operations = replayed_operations(subject, tell)
        own = _own(subject, operations)
        taken, stages = _rounds(subject, [*own, *_rivals(subject, sample, folder)], rounds, tell)
        passes = rounds_of(_passes(subject, work, folder), 2 * rounds, tell)
    targets = [
        *_grading(subject, taken),
        _against(subject, sample, taken, rival="naive", target=NAIVE),
        _processes(subject),
        _processes_of_faulty(subject, tell),
        *_operations(operations, taken),
        best(
            "sandbox: extra CPU of memcheck",
            passes["memcheck, sandboxed"],
            passes["memcheck, plain"],
            minus=1.0,
            target=SANDBOX,
        ),
        *_hanging(subject, tell),
        *python_labs(rounds, tell, target=PYTHON_STARTS),
    ]
    if len(os.sched_getaffinity(0)) > 1:
        targets.append(efficiency(subject.path, subject.lab.name, rounds, target=WORKERS, tell=tell))
    rivals = (
        _against(subject, sample, taken, rival="naive, our link"),
        ratio(
            "pytest, one native process per case / ours",
            _sums(taken["G"], taken["pytest"]),
            taken["grading"],
        ),
    )
    growth = (*_more_cases(subject, tell), *_larger_pools(subject, tell))
    return [
        Section("Targets", tuple(targets)),
        Section("Rivals without a target", rivals),
        _parts(taken, stages),
        Section("Growth", growth),
    ]


def _own(subject: Subject, operations: Sequence[Operations]) -> list[Candidate]:
    """The yardsticks and the grader itself."""
    case = subject.cases[0]
    return [
        Candidate("G", subject.compile_strictly),
        Candidate("V", subject.empty_under_valgrind),
        Candidate("grading", subject.grade),
        Candidate("one case", partial(subject.grade, [case])),
        Candidate("a process for one case", partial(subject.grade_in_a_process, case.name)),
        Candidate("a process for all cases", partial(subject.grade_in_a_process, "*")),
        Candidate("imports", partial(subject.start_and_import, subject.modules(case))),
        Candidate("loading", subject.load_cases),
        *(candidate for played_cases in operations for candidate in played_cases.candidates(subject)),
    ]


def _passes(subject: Subject, work: sandbox.Workspace, folder: Path) -> list[Candidate]:
    """The memcheck stage, with and without the sandbox."""
    bare = plain(folder, "bare")
    return [
        Candidate("memcheck, sandboxed", partial(subject.memcheck, work, subject.cases)),
        Candidate("memcheck, plain", partial(subject.memcheck, bare, subject.cases)),
    ]


def _rivals(subject: Subject, sample: Sequence[Case], folder: Path) -> list[Candidate]:
    with_libc = dynamic(subject)
    as_stock, as_ours, tests = (plain(folder, name) for name in ("stock", "ours", "pytest"))
    pytest_files(subject, tests.folder, with_libc)
    return [
        Candidate("naive", partial(naive, subject, as_stock, with_libc, sample), _DEAR_ROUNDS),
        Candidate("naive, our link", partial(naive, subject, as_ours, subject.program, sample), _DEAR_ROUNDS),
        Candidate("pytest", partial(pytest_run, tests.folder), _DEAR_ROUNDS),
    ]


def _rounds(
    subject: Subject, candidates: Sequence[Candidate], rounds: int, tell: Tell
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the CPU seconds of the candidates, and of the grader's stages in the same rounds."""
    stages: dict[str, list[float]] = {}

    def grade() -> None:
        for stage, seconds in subject.grade().cpu_seconds.items():
            stages.setdefault(stage, []).append(seconds)

    tell("warming up")
    grade()  # the driver is compiled once per machine, and modules are imported once per process
    stages.clear()
    watched = [replace(candidate, work=grade) if candidate.name == "grading" else candidate for candidate in candidates]
    return rounds_of(watched, rounds, tell), stages


def _grading(subject: Subject, taken: dict[str, list[float]]) -> list[Figure]:
    count = len(subject.cases)
    return [
        ratio(f"whole grading, {count} cases / G", taken["grading"], taken["G"], target=GRADING_G),
        ratio(f"whole grading, {count} cases / V", taken["grading"], taken["V"], target=GRADING_V),
        ratio("interpreter start and imports of `grade run` / G", taken["imports"], taken["G"], target=START_G),
        ratio("`grade run` from the shell / G", taken["a process for all cases"], taken["G"], target=RUN_G),
    ]


def _parts(taken: dict[str, list[float]], stages: dict[str, list[float]]) -> Section:
    """The parts of the cost."""
    command = differences(taken["a process for one case"], taken["one case"])
    return Section(
        "Parts",
        (
            ratio("V / G", taken["V"], taken["G"]),
            ratio("`grade run`, one case, less its grading / G", command, taken["G"]),
            ratio("loading all case files (once a process) / G", taken["loading"], taken["G"]),
            *(ratio(f"{stage} / G", seconds, taken["G"]) for stage, seconds in stages.items() if any(seconds)),
        ),
    )


def _operations(operations: Sequence[Operations], taken: dict[str, list[float]]) -> list[Figure]:
    return [figure for played_cases in operations for figure in played_cases.figures(taken)]


def _against(
    subject: Subject,
    sample: Sequence[Case],
    taken: dict[str, list[float]],
    *,
    rival: str,
    target: Target | None = None,
) -> Figure:
    """Scale a rival that played a sample of the cases: it compiles once, and the rest grows with the cases."""
    scale = len(subject.cases) / len(sample)
    scaled = [scale * seconds for seconds in taken[rival]]
    name = f"{rival} ({len(sample)} of {len(subject.cases)} cases, scaled) / ours"
    return ratio(name, _sums(taken["G"], scaled), taken["grading"], target=target)


def _sums(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(first, second, strict=False)]


def _processes(subject: Subject) -> Figure:
    count = _valgrind_processes(subject, subject.path)
    return worst("Valgrind processes of this submission", [count], target=PROCESSES)


def _processes_of_faulty(subject: Subject, tell: Tell) -> Figure:
    """Measure the samples that crash or misuse memory: only these may need more than one Valgrind process."""
    faulty = [*subject.samples(Verdict.RUN_TIME_ERROR), *subject.samples(Verdict.MEMORY_ERROR)]
    counts = []
    for path in faulty:
        tell(f"Valgrind processes of {path.name}")
        counts.append(_valgrind_processes(subject, path))
    return worst(f"Valgrind processes, most of {len(faulty)} faulty submissions", counts, target=MOST_PROCESSES)


def _valgrind_processes(subject: Subject, path: Path) -> int:
    with sandbox.workspace() as work:
        attempt = Attempt(lab=subject.lab, path=path, cases=subject.cases, work=work)
        for step in pipeline.STEPS:
            attempt = step(attempt)
    observed = attempt.observed
    checked = observed.checked if isinstance(observed, NativeObservations) else None
    return checked.processes if checked is not None else 0


def _hanging(subject: Subject, tell: Tell) -> list[Figure]:
    """Measure labelled submissions that never end, except attacks; wall time has no target: other load affects it."""
    paths = [path for path in subject.samples(Verdict.TIME_LIMIT_EXCEEDED) if not path.name.startswith(_ATTACK)]
    cpu, wall = [], []
    for path in paths:
        tell(f"hanging: {path.name}")
        grade = partial(replace(subject, path=path).grade)
        wall.append(wall_of(lambda grade=grade: cpu.append(cpu_of(grade))))  # type: ignore[misc]
    name = f"a hanging submission, worst of {len(paths)}"
    return [worst(f"{name}: CPU seconds", cpu, target=HANG_SECONDS), worst(f"{name}: wall seconds", wall)]


def _more_cases(subject: Subject, tell: Tell) -> list[Figure]:
    """Measure the native pass, the comparison and the Valgrind pass over the cases repeated under new names."""
    times = (1, 4, 16)
    candidates = []
    with sandbox.workspace() as work:
        for factor in times:
            cases = [replace(case, name=f"{case.name}_{n}") for n in range(factor) for case in subject.cases]
            candidates.append(Candidate(f"cases x {factor}", partial(_played, subject, work, cases)))
        taken = rounds_of(candidates, _DEAR_ROUNDS, tell)
    each = {factor: [seconds / factor for seconds in taken[f"cases x {factor}"]] for factor in times}
    return [ratio(f"CPU per case, {factor} x the cases / 1 x", each[factor], each[1]) for factor in times[1:]]


def _larger_pools(subject: Subject, tell: Tell) -> list[Figure]:
    """Measure the same calls on larger pools."""
    candidates = []
    with sandbox.workspace() as work:
        for blocks in _POOLS:
            cases = [
                on_pool(subject.cases[0], subject.lab.model, blocks=blocks, operations=150, seed=seed)
                for seed in range(4)
            ]
            candidates.append(Candidate(f"{blocks} blocks", partial(_played, subject, work, cases)))
        taken = rounds_of(candidates, _DEAR_ROUNDS, tell)
    least = taken[f"{_POOLS[0]} blocks"]
    return [
        ratio(f"CPU per operation, pools of {blocks} blocks / {_POOLS[0]}", taken[f"{blocks} blocks"], least)
        for blocks in _POOLS[1:]
    ]


def _played(subject: Subject, work: sandbox.Workspace, cases: Sequence[Case]) -> None:
    """Run all passes."""
    subject.compare(subject.replay(work, cases))
    subject.memcheck(work, cases)
