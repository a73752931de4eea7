"""One submission, from path to record, as a tuple of steps. Read `STEPS`: it is the table of contents of the grader.

Each step takes an `Attempt` and returns the next one. A wrong submission travels on as a value; only a broken grader
raises. `Attempt.optional` runs what cannot change points, such as the search for lines. There a failure is noted in the
record, and the grading goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.case_selection import select_cases
from grader.assignment.lab import Lab
from grader.assignment.source import Source, collect
from grader.attempt import Attempt, stage_name, timed
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.core.optional_stages import OptionalStage
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.core.verdict import Judged, RuleScore, Verdict, Visibility
from grader.judge.case_findings import case_findings, unplaced
from grader.judge.causes import diagnose
from grader.judge.compare import compare
from grader.judge.resume import pass_when_resumed
from grader.judge.score import passes, rule_scores
from grader.result.assemble import record
from grader.runtime.observation import Played
from grader.runtime.protocol import DEFAULTS, Advised, Built, GradingOptions, Observations
from grader.runtime.runs import has_become_slower
from grader.search.generated import play_together, shortest_failing
from grader.system import resources, sandbox
from grader.system.budget import Budget
from grader.system.sandbox import Workspace
from reference.oracle import Generator

if TYPE_CHECKING:
    from grader.search.player import FailingTrace, TracePlayer

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""


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
    progress: Progress = lambda _: None,
) -> Record:
    """Grade the submission at `path`, or the `source` that was read there. Raises `GraderError` when we are at fault.

    With `hidden` the cases are the public part, and `hidden` is what the others weigh (grader.assignment.
    case_selection). `hand_in` is the number of this hand-in, by which the rubric may limit what students see, None
    where it is not known. `draw` says how many failing cases get pictures (grader.result.draw_states). `searches`: a
    search goes beyond the cases, for the reader of a report. `budget` is the time of the submission, by default that of
    every one.
    """
    resources.require(*lab.runtime.tools(options))
    with _workspace(lab, budget) as work:
        attempt = Attempt(
            lab=lab,
            path=path,
            cases=tuple(cases),
            work=work,
            options=options,
            hidden=hidden,
            source=source,
            hand_in=hand_in,
            searches=searches,
        )
        for step in STEPS:
            progress(stage_name(step))
            attempt = timed(step, attempt)
    would = attempt.optional.run(OptionalStage.WOULD_SCORE, partial(_would_score, attempt), otherwise=())
    return record(attempt, would=would, draw=draw)


def first_look(
    path: Path, lab: Lab, cases: Sequence[Case], options: GradingOptions, *, source: Source, budget: Budget
) -> Record | None:
    """Return what is soon known of a submission: a record without a score. None: it would show all or nothing.

    Only the public cases with given operations are played, all in one process, and alone those that go wrong in it.
    None is returned too where a runtime cannot play many cases in a process, or nothing can be built.
    """
    soon = tuple(case for case in cases if case.visibility is Visibility.PUBLIC and case.generated is None)
    if not soon or len(soon) == len(cases) or not lab.runtime.plays_generated:
        return None
    resources.require(*lab.runtime.tools(options))
    with _workspace(lab, budget) as work:
        attempt = Attempt(lab=lab, path=path, cases=soon, work=work, options=options, source=source)
        for step in FIRST_STEPS:
            attempt = timed(step, attempt)
    return replace(record(attempt, draw=Drawing.NOTHING), complete=False, score=None) if attempt.can_run else None


def failed_cases(
    source: Source, lab: Lab, cases: Sequence[Case], *, memory_checker: bool = False
) -> frozenset[str] | None:
    """Return the names of the cases that a submission does not pass; None where there is nothing to run.

    Only what can make a case pass or fail is done: nothing is explained, and no instrument but the harness is used.
    With `memory_checker` the tool that finds wrong uses of memory looks on too, and no case with one passes. Raises
    `GraderError` when the grader's side breaks.
    """
    options = GradingOptions(memory_checker=memory_checker)
    with _workspace(lab) as work:
        attempt = Attempt(
            lab=lab, path=Path(source.name), cases=tuple(cases), work=work, options=options, source=source
        )
        for step in (_collect, _build, _play, _compare, _resume, _inspect, _diagnose):
            attempt = step(attempt)
    if attempt.observed is None:
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
    """Return the smallest trace that fails as the one that `search` finds does; None where it finds none.

    After so many `seconds` of making it smaller what was reached is returned. No trace leaves the domain of those that
    `generate` makes. Raises `UsageError` when the submission cannot be built, `GraderError` when the grader's side
    breaks.
    """
    from grader.search.domain import Domain  # noqa: PLC0415 - a grading does not search
    from grader.search.player import TracePlayer  # noqa: PLC0415
    from grader.search.shrink import shrink  # noqa: PLC0415

    resources.require(*lab.runtime.tools(DEFAULTS))
    with _workspace(lab, budget) as work:
        attempt = _build(Attempt(lab=lab, path=Path(source.name), cases=(), work=work, source=source))
        if attempt.program is None:
            raise UsageError(f"{source.name}: it cannot be built, so there is nothing to play; `grade run` shows why")
        domain = Domain.of(generate, select_cases(lab, seed=attempt.seed).cases)
        player = TracePlayer(lab, work, attempt.program, attempt.seed, domain)
        failing = search(player)
        started = time.monotonic()
        return shrink(player, failing, lambda: time.monotonic() - started > seconds) if failing is not None else None


def _workspace(lab: Lab, budget: Budget | None = None) -> AbstractContextManager[Workspace]:
    """Make a workspace whose limits of time are those of this machine."""
    pace = lab.runtime.pace()  # first: what is compiled for it is not charged
    return sandbox.workspace(replace(budget or Budget(), pace=pace), tools=lab.runtime.programs)


def _collect(attempt: Attempt) -> Attempt:
    rule = attempt.lab.rubric.judged(Judged.BUILD)
    return replace(attempt, source=attempt.source or collect(attempt.path, attempt.lab.source_name, rule))


def _build(attempt: Attempt) -> Attempt:
    source = attempt.source
    assert source is not None
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


def _play(attempt: Attempt) -> Attempt:
    if attempt.program is None:
        return attempt
    play = partial(attempt.lab.runtime.play, attempt.work, attempt.program, optional=attempt.optional)
    judge = partial(compare, model=attempt.lab.model)
    replayed = play_together(attempt.cases, play) if attempt.program.begins_slowly else play(attempt.cases)
    played = shortest_failing(replayed.played, attempt.lab.model, lambda cases: play(cases).played, judge)
    replayed = replace(replayed, played=played)
    return replace(attempt, replayed=replayed, spent=attempt.spent | {"play": replayed.cpu_seconds})


def _play_together(attempt: Attempt) -> Attempt:
    """As `_play`, in few processes."""
    if attempt.program is None:
        return attempt
    play = partial(attempt.lab.runtime.play, attempt.work, attempt.program, optional=attempt.optional)
    replayed = play_together(attempt.cases, play)
    return replace(attempt, replayed=replayed, spent=attempt.spent | {"play": replayed.cpu_seconds})


def _compare(attempt: Attempt) -> Attempt:
    if attempt.replayed is None:
        return attempt
    budget, began = attempt.work.budget, time.monotonic()
    compared = partial(compare, model=attempt.lab.model, late=lambda: budget.empty)
    comparisons = tuple(map(compared, attempt.replayed.played))
    unjudged = any(comparison.unjudged for comparison in comparisons)
    if unjudged and has_become_slower(attempt.work, attempt.lab.runtime, since=began):
        comparisons = tuple(map(compared, attempt.replayed.played))
    return attempt.with_observed(Observations(comparisons=comparisons))


def _resume(attempt: Attempt) -> Attempt:
    """Judge alone what follows a call that stopped its case."""
    if attempt.program is None or attempt.relaxed:
        return attempt
    play = partial(attempt.lab.runtime.play, attempt.work, attempt.program, optional=attempt.optional)
    spent: list[float] = []

    def play_cases(cases: Sequence[Case]) -> Sequence[Played]:
        replayed = play(cases)
        spent.append(replayed.cpu_seconds)
        return replayed.played

    resumed = pass_when_resumed(attempt.comparisons, attempt.lab, play_cases)
    return replace(attempt, resumed=resumed, spent=attempt.spent | {"resume": sum(spent)} if spent else attempt.spent)


def _inspect(attempt: Attempt) -> Attempt:
    """Instruments look at the same cases; not where only the points count."""
    if attempt.program is None or attempt.observed is None:
        return attempt
    observed = attempt.lab.runtime.inspect(
        attempt.work,
        attempt.program,
        comparisons=attempt.comparisons,
        options=replace(attempt.options, memory_checker=attempt.options.memory_checker and not attempt.relaxed),
        optional=attempt.optional,
    )
    return replace(attempt.with_observed(observed), advice=observed.advice)


def _diagnose(attempt: Attempt) -> Attempt:
    """Comes before and after `_pinpoint`, which looks more closely at what is diagnosed; once, if it sees no more."""
    if attempt.observed is None or attempt.diagnosed is not None:
        return attempt
    unwritten = attempt.built.unwritten if attempt.built is not None else ()
    findings, by_call = case_findings(
        attempt.observed, attempt.lab, unwritten=unwritten, resumed=attempt.resumed, optional=attempt.optional
    )
    return replace(attempt, case_findings=tuple(findings), diagnosed=diagnose(findings, by_call, attempt.lab))


def _pinpoint(attempt: Attempt) -> Attempt:
    """Look for lines of what went wrong."""
    source, program, observed, diagnosed = attempt.source, attempt.program, attempt.observed, attempt.diagnosed
    if source is None or program is None or observed is None or diagnosed is None or attempt.relaxed:
        return attempt
    more = attempt.lab.runtime.pinpoint(
        attempt.work,
        program,
        source=source.content,
        observed=observed,
        unplaced=unplaced(attempt.case_findings, diagnosed.order),
        order=diagnosed.order,
        optional=attempt.optional,
    )
    return attempt.with_observed(more)


def _pinpoint_first(attempt: Attempt) -> Attempt:
    """As `_pinpoint`, for the case to show first."""
    if attempt.diagnosed is None:
        return attempt
    first = replace(attempt.diagnosed, order=attempt.diagnosed.order[:1])
    return _pinpoint(replace(attempt, diagnosed=first))


def _score(attempt: Attempt) -> Attempt:
    built = attempt.built
    builds = built is not None and attempt.can_run and not built.findings and not built.missing
    cause = attempt.diagnosed.first_cause if attempt.diagnosed is not None else None
    scores = rule_scores(
        attempt.case_findings,
        attempt.lab.rubric,
        attempt.cases,
        builds=builds,
        diagnosed=cause.rule if cause is not None else None,
        hidden=attempt.hidden,
    )
    return replace(attempt, scores=scores)


def _advise(attempt: Attempt) -> Attempt:
    """Comes when the points are counted, so that it cannot cost any."""
    source, program = attempt.source, attempt.program
    if not attempt.options.advise or attempt.relaxed or source is None or program is None:
        return attempt
    judge = partial(compare, model=attempt.lab.model)
    look = partial(
        attempt.lab.runtime.advise,
        attempt.work,
        program,
        source=source.content,
        comparisons=attempt.comparisons,
        judge=judge,
    )
    advised = attempt.optional.run(OptionalStage.ADVICE, look, otherwise=Advised(advice=(), cpu_seconds=0.0))
    advice, spent = (*attempt.advice, *advised.advice), attempt.spent | {"advise": advised.cpu_seconds}
    return replace(attempt, advice=advice, spent=spent)


def _search(attempt: Attempt) -> Attempt:
    """Go beyond the cases, where that is wanted; it cannot cost a point either."""
    if not attempt.searches or attempt.relaxed or attempt.program is None or attempt.diagnosed is None:
        return attempt
    if attempt.built is not None and attempt.built.findings:  # the report speaks of the build
        return attempt
    return attempt.optional.run(OptionalStage.SEARCH, partial(_searched, attempt), otherwise=attempt)


def _searched(attempt: Attempt) -> Attempt:
    from grader.search.beyond import checked, load_closure, smallest  # noqa: PLC0415 - few gradings search
    from grader.search.domain import Domain  # noqa: PLC0415
    from grader.search.player import TracePlayer  # noqa: PLC0415

    lab, program, generate = attempt.lab, attempt.program, attempt.lab.generator()
    assert program is not None
    assert attempt.diagnosed is not None
    if generate is None:
        return attempt
    domain = Domain.of(generate, attempt.cases)
    player = TracePlayer(lab, attempt.work, program, attempt.seed, domain)
    cause = attempt.diagnosed.first_cause
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
    """What a submission that does not compile would have scored, warnings forgiven and holes stubbed; else nothing."""
    source, built = attempt.source, attempt.built
    if built is None or attempt.can_run or built.stopped or source is None or source.finding is not None:
        return ()
    if any(finding.verdict is Verdict.REJECTED for finding in built.findings):  # it would be again
        return ()
    with sandbox.workspace(attempt.work.budget, tools=attempt.work.tools) as work:
        again = replace(attempt, work=work, relaxed=True)
        for step in STEPS[1:]:
            again = step(again)
    return again.scores if again.can_run else ()


STEPS: tuple[Callable[[Attempt], Attempt], ...] = (
    _collect,
    _build,
    _play,
    _compare,
    _resume,
    _inspect,
    _diagnose,
    _pinpoint,
    _diagnose,
    _score,
    _advise,
    _search,
)
"""The stages of one grading, whatever the language of the submission."""

_SOON: dict[Callable[[Attempt], Attempt], Callable[[Attempt], Attempt]] = {
    _play: _play_together,
    _pinpoint: _pinpoint_first,
}
FIRST_STEPS = tuple(_SOON.get(step, step) for step in STEPS)
"""The stages of a first look (`first_look`)."""
