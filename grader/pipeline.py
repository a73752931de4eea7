"""One submission, from path to record, as a tuple of steps. Read `STEPS`: it is the table of contents of the grader.

Each step takes an `Attempt` and returns the next one. A wrong submission travels on as a value; only a broken grader
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from grader.assignment.lab import Built, Lab
from grader.assignment.settings import DEFAULTS, GradingOptions
from grader.assignment.source import Source, collect
from grader.attempt import Attempt, stage_name, timed
from grader.core.case import Case
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.core.verdict import Judged, Verdict, Visibility
from grader.judge.case_causes import case_findings
from grader.judge.case_findings import suspicions
from grader.judge.compare import compare
from grader.judge.diagnose import diagnose
from grader.judge.score import rule_scores, total
from grader.judge.symptoms import stacks_of
from grader.result.assemble import record
from grader.runtime.confirm import run_confirmed
from grader.runtime.native.advice import look_for_advice
from grader.runtime.native.leaks import find_lost
from grader.runtime.native.lines import find_lines
from grader.runtime.native.plan import apart
from grader.runtime.native.replay import replay
from grader.runtime.native.symbolize import source_lines
from grader.runtime.native.valgrind.callgrind import count_instructions
from grader.runtime.native.valgrind.memcheck import MOST_PROCESSES, memcheck
from grader.runtime.native.valgrind.pinpoint import advice, cases_with_unset, cases_without_line, completed, unfinished
from grader.system import sandbox, tools

__all__ = ["STEPS", "Progress", "grade"]

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
    draw: Drawing = Drawing.NOTHING,
    progress: Progress = lambda _: None,
) -> Record:
    """Grade the submission at `path`, or the `source` that was read there. Raises `GraderError` when we are at fault.

    With `hidden` the cases are the public part, and `hidden` is what the others weigh (grader.assignment.
    case_selection). `draw` says how many failing cases get pictures (grader.result.draw_states).
    """
    tools.require(*lab.tools, *(["valgrind"] if options.valgrind or options.instructions else []))
    with sandbox.workspace() as work:
        attempt = Attempt(
            lab=lab,
            path=path,
            cases=tuple(cases),
            work=work,
            options=options,
            hidden=hidden,
            source=source,
        )
        for step in STEPS:
            progress(stage_name(step))
            attempt = timed(step, attempt)
    return record(attempt, would_score=_would_score(attempt), draw=draw)


def _collect(attempt: Attempt) -> Attempt:
    rule = attempt.lab.rubric.judged(Judged.BUILD)
    return replace(attempt, source=attempt.source or collect(attempt.path, attempt.lab.source_name, rule))


def _build(attempt: Attempt) -> Attempt:
    source = attempt.source
    assert source is not None
    if source.finding is not None:
        return replace(attempt, built=Built(program=None, findings=(source.finding,)))
    built = attempt.lab.build(
        attempt.work,
        source.content,
        own_headers=source.own_headers,
        relaxed=attempt.relaxed,
        allowed=frozenset(attempt.options.allowed),
    )
    return replace(attempt, built=built, spent=attempt.spent | {"build": built.cpu_seconds})


def _replay(attempt: Attempt) -> Attempt:
    program = attempt.program
    if program is None:
        return attempt
    codes, settings = attempt.lab.codes, attempt.lab.driver_settings
    run = partial(replay, cases=attempt.cases, codes=codes, settings=settings)
    replayed = run_confirmed(attempt.lab, attempt.work, program, run)
    return replace(attempt, replayed=replayed, spent=attempt.spent | {"replay": replayed.cpu_seconds})


def _compare(attempt: Attempt) -> Attempt:
    if attempt.replayed is None:
        return attempt
    budget = attempt.work.budget
    compared = partial(compare, model=attempt.lab.model, late=lambda: budget.empty)
    comparisons = tuple(compared(played) for played in attempt.replayed.played)
    return replace(attempt, comparisons=comparisons)


def _find_lost(attempt: Attempt) -> Attempt:
    program = attempt.program
    if program is None or attempt.relaxed:
        return attempt
    codes, settings = attempt.lab.codes, attempt.lab.driver_settings
    comparisons, seconds = find_lost(attempt.work, program, attempt.comparisons, codes=codes, settings=settings)
    return replace(attempt, comparisons=comparisons, spent=attempt.spent | {"find lost": seconds})


def _memcheck(attempt: Attempt) -> Attempt:
    """Valgrind sees the cases that neither crashed nor hung natively."""
    program = attempt.program
    if program is None or not attempt.options.valgrind or attempt.relaxed:
        return attempt
    sound = _sound(attempt)
    if not sound:
        return attempt
    run = partial(
        memcheck,
        cases=attempt.cases,
        numbers=sound,
        natively={i: attempt.comparisons[i].played.cpu_seconds for i in sound},
        building=attempt.spent["build"],
        codes=attempt.lab.codes,
        settings=attempt.lab.driver_settings,
        allowed={i: attempt.comparisons[i].allowed for i in sound},
        steps={i: attempt.comparisons[i].played.steps for i in sound},
    )
    checked = run_confirmed(attempt.lab, attempt.work, program, run)
    return replace(
        attempt,
        checked=checked,
        advice=(*attempt.advice, *unfinished(checked, len(sound)), *advice(attempt.comparisons, checked)),
        spent=attempt.spent | {"memcheck": checked.cpu_seconds},
    )


def _pinpoint(attempt: Attempt) -> Attempt:
    """Valgrind once more, only where something is wrong and its line is still unknown."""
    program, checked = attempt.program, attempt.checked
    if program is None or checked is None:
        return attempt
    diagnosis = attempt.diagnosed.diagnosis if attempt.diagnosed is not None else None
    without_line = cases_without_line(attempt.comparisons, checked, diagnosis.case if diagnosis is not None else None)
    unset = cases_with_unset(checked)
    wanted = [*without_line, *(number for number in unset if number not in without_line)]
    if not wanted or checked.processes >= MOST_PROCESSES:
        return attempt
    chosen = apart(attempt.cases, wanted)[0]
    more = memcheck(
        attempt.work,
        program,
        attempt.cases,
        chosen,
        building=attempt.spent["build"],
        codes=attempt.lab.codes,
        settings=attempt.lab.driver_settings,
        allowed={number: attempt.comparisons[number].allowed for number in without_line},
        natively={i: attempt.comparisons[i].played.cpu_seconds for i in chosen},
        strict=True,
        origins=bool(unset),
        most_processes=1,
    )
    checked = completed(checked, more)
    return _diagnose(replace(attempt, checked=checked, spent=attempt.spent | {"memcheck": checked.cpu_seconds}))


def _find_lines(attempt: Attempt) -> Attempt:
    """What is wrong and has no line yet: the file once more, in a build that tells of its lines."""
    if attempt.source is None or attempt.program is None or attempt.relaxed:
        return attempt
    with sandbox.workspace(attempt.work.budget) as work:  # what ran in the other one may have left something there
        named, seconds = find_lines(work, attempt.lab, attempt.source.content, suspicions(attempt.found))
    attempt = replace(attempt, named=named, spent=attempt.spent | {"find lines": seconds})
    return _diagnose(attempt) if named else attempt


def _count(attempt: Attempt) -> Attempt:
    """Callgrind sees the public cases, when somebody wants a leaderboard: everybody reads the number."""
    program = attempt.program
    if program is None or not attempt.options.instructions or attempt.relaxed:
        return attempt
    sound = [number for number in _sound(attempt) if attempt.cases[number].visibility is Visibility.PUBLIC]
    if not sound:
        return attempt
    codes, settings = attempt.lab.codes, attempt.lab.driver_settings
    counted = count_instructions(attempt.work, program, attempt.cases, sound, codes=codes, settings=settings)
    return replace(attempt, instructions=counted)


def _diagnose(attempt: Attempt) -> Attempt:
    program = attempt.program
    if program is None or not attempt.comparisons:
        return attempt
    lines = source_lines(attempt.work, program, stacks_of(attempt.comparisons))
    found = case_findings(attempt.comparisons, lines, attempt.checked, attempt.lab, named=attempt.named)
    return replace(attempt, found=tuple(found), diagnosed=diagnose(found, attempt.lab))


def _score(attempt: Attempt) -> Attempt:
    builds = attempt.built is not None and attempt.can_run and not attempt.built.findings
    diagnosis = attempt.diagnosed.diagnosis if attempt.diagnosed is not None else None
    scores = rule_scores(
        attempt.found,
        attempt.lab.rubric,
        attempt.cases,
        builds=builds,
        diagnosed=diagnosis.rule if diagnosis is not None else None,
        hidden=attempt.hidden,
    )
    return replace(attempt, scores=scores)


def _advise(attempt: Attempt) -> Attempt:
    """Comes when the points are counted, so that it cannot cost any."""
    source, program = attempt.source, attempt.program
    if not attempt.options.advise or attempt.relaxed or source is None or program is None:
        return attempt
    with sandbox.workspace(attempt.work.budget) as work:  # what ran in the other one may have left something there
        advised = look_for_advice(
            work,
            attempt.lab,
            source=source.content,
            program=program,
            comparisons=attempt.comparisons,
            judge=partial(compare, model=attempt.lab.model),
        )
    return replace(
        attempt, advice=(*attempt.advice, *advised.advice), spent=attempt.spent | {"advise": advised.cpu_seconds}
    )


def _sound(attempt: Attempt) -> list[int]:
    """The cases that neither crashed nor hung."""
    return [i for i, one in enumerate(attempt.comparisons) if one.played.complete or one.played.misfit]


def _would_score(attempt: Attempt) -> int | None:
    """What a submission that does not compile would have scored, warnings forgiven and holes stubbed."""
    source, built = attempt.source, attempt.built
    if built is None or attempt.can_run or built.stopped or source is None or source.finding is not None:
        return None
    if any(finding.verdict is Verdict.REJECTED for finding in built.findings):  # it would be again
        return None
    with sandbox.workspace(attempt.work.budget) as work:
        options = replace(attempt.options, valgrind=False)
        again = replace(attempt, work=work, relaxed=True, options=options)
        for step in STEPS[1:]:
            again = step(again)
    return total(again.scores) if again.can_run else None


STEPS: tuple[Callable[[Attempt], Attempt], ...] = (
    _collect,
    _build,
    _replay,
    _compare,
    _find_lost,
    _memcheck,
    _count,
    _diagnose,
    _pinpoint,
    _find_lines,
    _score,
    _advise,
)
"""The way of a submission."""
