"""One submission, from path to record, as a tuple of steps. Read `STEPS`: it is the table of contents of the grader.

The other tuples next to it list the steps for a first look, for a search, and so on. Each step takes an `Attempt` and
returns the next one. If the build makes no program, only those steps run that do not need a program. A wrong submission
has a record like a right one; only a failure of the grader raises an exception. `Attempt.optional` runs what cannot
change points, such as the search for lines. If that fails, the record says so and the grading continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.case_files import select_cases
from grader.assignment.lab import Lab
from grader.assignment.source import Source, collect
from grader.attempt import Attempt, GradingStep, run
from grader.core.case import Case
from grader.core.errors import OptionalStage, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.core.verdict import Judged, RuleScore, Verdict, Visibility
from grader.judge.case_findings import case_findings, unplaced
from grader.judge.causes import diagnose, search_order
from grader.judge.compare import compare
from grader.judge.resume import pass_when_resumed
from grader.judge.score import passes, rule_scores
from grader.result.assemble import record
from grader.runtime.protocol import DEFAULTS, Advised, Built, GradingOptions, Observations, Played
from grader.runtime.runs import has_become_slower
from grader.search.generated import play_together, shortest_failing
from grader.system import resources, sandbox
from grader.system.budget import Budget
from grader.system.sandbox import Workspace
from reference.oracle import Generator

if TYPE_CHECKING:
    from grader.search.player import FailingTrace, TracePlayer


def grade(
    path: Path,
    lab: Lab,
    cases: Sequence[Case],
    options: GradingOptions = DEFAULTS,
    *,
    hidden: Mapping[str, int] | None = None,
    source: Source | None = None,
    hand_in: int | None = None,
    draw: Drawing = Drawing.NOTHING,
    searches: bool = False,
    budget: Budget | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Record:
    """Grade the submission at `path`, or the `source` that was read there. Raises `GraderError` if the grader fails.

    If `cases` are only the public ones, `hidden` has the weights of the others by rule. `hand_in` is the number of this
    hand-in, by which the rubric may limit what students see; None if it is unknown. `draw` says how many failing cases
    get pictures (grader.result.draw_states). `searches` says whether to search for failing traces other than the cases.
    `budget` is the time that the submission gets. `progress` is called with what each step does before it begins.
    """
    resources.require(*lab.runtime.tools(options))
    with workspace(lab, budget) as work:
        attempt = Attempt(
            lab=lab,
            source=source or collect(path, lab.source_name, lab.rubric.judged(Judged.BUILD)),
            cases=tuple(cases),
            work=work,
            options=options,
            hidden=hidden,
            hand_in=hand_in,
            searches=searches,
        )
        attempt = run(attempt, STEPS, progress)
    would = attempt.optional.run(OptionalStage.WOULD_SCORE, partial(_would_score, attempt), otherwise=())
    return record(attempt, would=would, draw=draw)


def first_look(
    source: Source, lab: Lab, cases: Sequence[Case], options: GradingOptions, *, budget: Budget
) -> Record | None:
    """Return a preview: a record without a score, of the public cases whose operations the case file lists.

    Cases of random traces are left out. The other cases are played in one process; those that go wrong are played again
    alone. Returns None if the preview would equal the full report or be empty, if the runtime cannot play several cases
    in one process, or if the build makes no program.
    """
    soon = tuple(case for case in cases if case.visibility is Visibility.PUBLIC and case.generated is None)
    if not soon or len(soon) == len(cases) or not lab.runtime.plays_generated:
        return None
    resources.require(*lab.runtime.tools(options))
    with workspace(lab, budget) as work:
        attempt = run(Attempt(lab=lab, source=source, cases=soon, work=work, options=options), FIRST_LOOK)
    return replace(record(attempt, draw=Drawing.NOTHING), complete=False, score=None) if attempt.can_run else None


def failed_cases(
    source: Source, lab: Lab, cases: Sequence[Case], *, memory_checker: bool = False
) -> frozenset[str] | None:
    """Return the names of the cases that a submission does not pass; None if the build makes no program.

    Only the steps that decide whether a case passes run: no explanations, no instruments. With `memory_checker`, the
    memory checker runs too, and a case with a memory error does not pass. Raises `GraderError` if the grader fails.
    """
    options = GradingOptions(memory_checker=memory_checker)
    with workspace(lab) as work:
        attempt = Attempt(lab=lab, source=source, cases=tuple(cases), work=work, options=options)
        attempt = run(attempt, FAILED_CASES)
    if not attempt.can_run:
        return None
    return frozenset(
        findings.comparison.case.name
        for findings in attempt.case_findings
        if not passes(findings, lab.rubric.rule(findings.comparison.case.rule))
        or (memory_checker and findings.memory_errors)
    )


def hunted(
    source: Source,
    lab: Lab,
    generate: Generator,
    search: Callable[[TracePlayer], FailingTrace | None],
    *,
    seconds: float,
    budget: Budget | None = None,
) -> FailingTrace | None:
    """Return the smallest trace that fails like the one that `search` finds; None if `search` finds none.

    The trace is made smaller for at most `seconds`. The search only plays traces like those that `generate` makes, or
    like the beginnings of the lab's cases (`grader.search.player.Domain`).
    Raises `UsageError` if the submission cannot be built, `GraderError` if the grader fails.
    """
    from grader.search.hunt import shrink  # noqa: PLC0415
    from grader.search.player import Domain, TracePlayer  # noqa: PLC0415

    resources.require(*lab.runtime.tools(DEFAULTS))
    with workspace(lab, budget) as work:
        attempt = run(Attempt(lab=lab, source=source, cases=(), work=work), HUNTED)
        if not attempt.can_run:
            raise UsageError(f"{source.name}: it cannot be built, so there is nothing to play; `grade run` shows why")
        domain = Domain.of(generate, select_cases(lab, seed=attempt.seed).cases)
        player = TracePlayer(lab, work, attempt.program, attempt.seed, domain)
        failing = search(player)
        started = time.monotonic()
        return shrink(player, failing, lambda: time.monotonic() - started > seconds) if failing is not None else None


def workspace(lab: Lab, budget: Budget | None = None) -> AbstractContextManager[Workspace]:
    """Open a private workspace for one grading, whose time limits fit the speed of this machine."""
    pace = lab.runtime.pace()  # first, so that no submission is charged for what this compiles
    return sandbox.workspace(replace(budget or Budget(), pace=pace), tools=lab.runtime.programs)


@partial(GradingStep, "building", needs_program=False)
def _build(attempt: Attempt) -> Attempt:
    source = attempt.source
    if source.finding is not None:
        return replace(attempt, built=Built(program=None, findings=(source.finding,)))
    built = attempt.lab.runtime.build(
        attempt.work,
        source.content,
        beside=source.own_headers,
        optional=attempt.optional,
        relaxed=attempt.relaxed,
        allowed=frozenset(attempt.options.allowed),
        stock=attempt.options.stock,
    )
    rule = attempt.lab.rubric.judged(Judged.BUILD)
    built = replace(built, findings=tuple(replace(finding, rule=rule) for finding in built.findings))
    return replace(attempt, built=built, spent=attempt.spent | {"build": built.cpu_seconds})


@partial(GradingStep, "running the cases")
def _play(attempt: Attempt) -> Attempt:
    judge = partial(compare, model=attempt.lab.model)
    together = attempt.program.begins_slowly
    replayed = play_together(attempt.cases, attempt.play) if together else attempt.play(attempt.cases)
    played = shortest_failing(replayed.played, attempt.lab.model, lambda cases: attempt.play(cases).played, judge)
    replayed = replace(replayed, played=played)
    return replace(attempt, replayed=replayed, spent=attempt.spent | {"play": replayed.cpu_seconds})


@partial(GradingStep, "running the cases")
def _play_together(attempt: Attempt) -> Attempt:
    """Play the cases in few processes. Unlike `_play`, do not replace a random case by its failing trace."""
    replayed = play_together(attempt.cases, attempt.play)
    return replace(attempt, replayed=replayed, spent=attempt.spent | {"play": replayed.cpu_seconds})


@partial(GradingStep, "comparing with the reference")
def _compare(attempt: Attempt) -> Attempt:
    budget, began = attempt.work.budget, time.monotonic()
    compared = partial(compare, model=attempt.lab.model, late=lambda: budget.empty)
    comparisons = tuple(map(compared, attempt.replayed.played))
    unjudged = any(comparison.unjudged for comparison in comparisons)
    if unjudged and has_become_slower(attempt.work, attempt.lab.runtime, since=began):
        comparisons = tuple(map(compared, attempt.replayed.played))
    return replace(attempt, observed=Observations(comparisons=comparisons))


@partial(GradingStep, "judging later calls alone")
def _resume(attempt: Attempt) -> Attempt:
    """If a call stopped its case, judge the calls after it separately."""
    spent: list[float] = []
    budget, since = attempt.work.budget, time.thread_time()

    def compared() -> None:
        """Do not charge the submission for comparing. The number of operations limits that time already."""
        budget.leave_out(budget.own_seconds(since))

    def play_cases(cases: Sequence[Case]) -> Sequence[Played]:
        nonlocal since
        compared()
        replayed = attempt.play(cases)
        spent.append(replayed.cpu_seconds)
        since = time.thread_time()
        return replayed.played

    resumed = pass_when_resumed(attempt.comparisons, attempt.lab, play_cases)
    compared()
    return replace(attempt, resumed=resumed, spent=attempt.spent | {"resume": sum(spent)} if spent else attempt.spent)


@partial(GradingStep, "looking at the use of memory")
def _inspect(attempt: Attempt) -> Attempt:
    """Run the cases again under the runtime's instruments, such as its memory checker."""
    observed = attempt.lab.runtime.inspect(
        attempt.work,
        attempt.program,
        comparisons=attempt.comparisons,
        options=attempt.options,
        optional=attempt.optional,
    )
    spent = attempt.spent | dict(observed.spent)
    return replace(attempt, observed=observed, advice=observed.advice, spent=spent)


@partial(GradingStep, "looking for the cause")
def _diagnose(attempt: Attempt) -> Attempt:
    findings, by_call = case_findings(
        attempt.observed,
        attempt.lab,
        unwritten=attempt.built.unwritten,
        resumed=attempt.resumed,
        optional=attempt.optional,
    )
    causes = diagnose(findings, by_call, attempt.lab)
    return replace(attempt, case_findings=findings, causes=causes, stages=by_call)


@partial(GradingStep, "looking for lines")
def _pinpoint(attempt: Attempt) -> Attempt:
    return _pinpointed(attempt, search_order(attempt.causes, attempt.case_findings))


@partial(GradingStep, "looking for lines")
def _pinpoint_first(attempt: Attempt) -> Attempt:
    """Search for lines as `_pinpoint` does, but only for the case that the report shows first."""
    return _pinpointed(attempt, search_order(attempt.causes, attempt.case_findings)[:1], quick=True)


def _pinpointed(attempt: Attempt, order: Sequence[int], *, quick: bool = False) -> Attempt:
    """Search for the source lines that make the cases in `order` fail. If any are found, diagnose again."""
    observed = attempt.lab.runtime.pinpoint(
        attempt.work,
        attempt.program,
        source=attempt.source.content,
        observed=attempt.observed,
        unplaced=unplaced(attempt.case_findings, order),
        order=order,
        optional=attempt.optional,
        quick=quick,
    )
    if observed is attempt.observed:
        return attempt
    return _diagnose.take(replace(attempt, observed=observed, spent=attempt.spent | dict(observed.spent)))


@partial(GradingStep, "counting points", needs_program=False)
def _score(attempt: Attempt) -> Attempt:
    cause = attempt.first_cause
    scores = rule_scores(
        attempt.case_findings,
        attempt.lab.rubric,
        attempt.cases,
        builds=attempt.can_run and not attempt.built.findings and not (attempt.built.missing and attempt.causes),
        diagnosed=cause.rule if cause is not None else None,
        hidden=attempt.hidden,
    )
    return replace(attempt, scores=scores)


@partial(GradingStep, "looking for advice")
def _advise(attempt: Attempt) -> Attempt:
    """Look for advice, such as on undefined behaviour. The points are already counted, so advice costs none."""
    if not attempt.options.advise:
        return attempt
    look = partial(
        attempt.lab.runtime.advise,
        attempt.work,
        attempt.program,
        source=attempt.source.content,
        comparisons=attempt.comparisons,
        judge=partial(compare, model=attempt.lab.model),
    )
    advised = attempt.optional.run(OptionalStage.ADVICE, look, otherwise=Advised(advice=(), cpu_seconds=0.0))
    advice, spent = (*attempt.advice, *advised.advice), attempt.spent | {"advise": advised.cpu_seconds}
    return replace(attempt, advice=advice, spent=spent)


@partial(GradingStep, "searching beyond the cases (the first time ten seconds more)")
def _search(attempt: Attempt) -> Attempt:
    """If `searches`, find the smallest trace of the first cause; with full marks, check all states of small engines."""
    if not attempt.searches or attempt.built.findings:  # such a report is about the build, not about a trace
        return attempt
    return attempt.optional.run(OptionalStage.SEARCH, partial(_searched, attempt), otherwise=attempt)


def _searched(attempt: Attempt) -> Attempt:
    from grader.search.hunt import checked, load_closure, smallest  # noqa: PLC0415 - few gradings search
    from grader.search.player import Domain, TracePlayer  # noqa: PLC0415

    lab, generate = attempt.lab, attempt.lab.generator()
    if generate is None:
        return attempt
    domain = Domain.of(generate, attempt.cases)
    player = TracePlayer(lab, attempt.work, attempt.program, attempt.seed, domain)
    cause = attempt.first_cause
    if cause is not None:
        case = next(case for case in attempt.cases if case.name == cause.cases[0])
        if case.visibility is not Visibility.PUBLIC:
            return attempt
        return replace(attempt, smallest=smallest(player, case))
    explored = load_closure(lab) if all(score.points == score.max_points for score in attempt.scores) else None
    if explored is None:
        return attempt
    sentence, advice = checked(player, explored)
    return replace(attempt, closure=sentence, advice=(*attempt.advice, *advice))


def _would_score(attempt: Attempt) -> tuple[RuleScore, ...]:
    """Return the scores of a submission that does not compile, with warnings ignored and stubs for missing functions.

    Returns () for any other submission.
    """
    built = attempt.built
    if attempt.can_run or built.stopped or attempt.source.finding is not None:
        return ()
    if any(finding.verdict is Verdict.REJECTED for finding in built.findings):  # a relaxed build is rejected, too
        return ()
    options = replace(attempt.options, memory_checker=False)
    with sandbox.workspace(attempt.work.budget, tools=attempt.work.tools) as work:
        again = run(replace(attempt, work=work, options=options, relaxed=True), WOULD_SCORE)
    return again.scores if again.can_run else ()


STEPS = (_build, _play, _compare, _resume, _inspect, _diagnose, _pinpoint, _score, _advise, _search)
"""The steps of one complete grading, in any language."""
FIRST_LOOK = (_build, _play_together, _compare, _resume, _inspect, _diagnose, _pinpoint_first, _score)
WOULD_SCORE = (_build, _play, _compare, _resume, _inspect, _diagnose, _score)
FAILED_CASES = (_build, _play, _compare, _resume, _inspect, _diagnose)
COMPARED = (_build, _play, _compare)
HUNTED = (_build,)
