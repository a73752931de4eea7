"""How far an unfinished file is, call by call, and what became of the causes of an earlier hand-in.

A cause is fixed, new, or still there (see `Cause.identity`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from grader.core.record import Record, whole_points
from grader.core.verdict import Audience, CallStage, Cause, Outcome, Stage, Verdict, Visibility
from grader.report.document import released
from grader.report.page import Page, bad, dim, good
from grader.report.phrases import points_lost
from grader.report.trace import call_at

STAGE_WORDS = {
    Stage.WORKS: "works, as far as public cases ask",
    Stage.IN_WORK: "in work: not right yet in all cases that ask for it",
    Stage.NOT_YET: "not yet: its body does nothing but return",
}


def how_to_begin(record: Record) -> str:
    """Return what to do with a file in which no call does its work yet; empty for any other file."""
    if not record.stages or any(call_stage.stage is not Stage.NOT_YET for call_stage in record.stages):
        return ""
    first = record.stages[0]
    return (
        f"Every file begins like this. Write {first.call} first ({first.task} of the handout), grade again, and go on "
        "call by call: this list says which comes next."
    )


def is_for_later(record: Record, outcome: Outcome) -> bool:
    """Whether the case only shows that a call is not written yet."""
    return is_in_unwritten(record, outcome, record.bad_operation(outcome))


def is_in_unwritten(record: Record, outcome: Outcome, number: int | None) -> bool:
    """Whether operation `number` of the case is a call that is not written yet."""
    words = call_at(outcome, number).split()  # one of them is the name of the call
    return any(call_stage.stage is Stage.NOT_YET and call_stage.call in words for call_stage in record.stages)


def asked_now(record: Record, causes: list[Cause]) -> list[Cause]:
    """Return the first cause, and the other causes except those that only show that a call is not written yet."""
    return causes[:1] + [cause for cause in causes[1:] if not is_for_later(record, record.outcome(cause.cases[0]))]


def is_next(record: Record) -> bool:
    """Whether the report begins with a case that only shows that a call is not written yet."""
    cases = record.first_cause.cases[:1] if record.first_cause is not None else ()
    return any(is_for_later(record, record.outcome(case)) for case in cases)


def by_task(record: Record) -> tuple[list[tuple[CallStage, str]], str]:
    """Return what each call cost in public cases, in the handout's order, and what hidden cases cost ("": nothing).

    A case belongs to the call in which it first went wrong.
    """
    wrong: dict[str, list[Outcome]] = {call_stage.call: [] for call_stage in record.stages}
    for outcome in record.outcomes:
        if outcome.verdict is not Verdict.ACCEPTED and outcome.visibility is Visibility.PUBLIC:
            words = call_at(outcome, record.bad_operation(outcome)).split()
            for call in [word for word in words if word in wrong][:1]:
                wrong[call].append(outcome)
    hidden = [outcome for outcome in record.outcomes if outcome.visibility is Visibility.HIDDEN]
    *lost, by_hidden = whole_points([sum(outcome.points for outcome in cases) for cases in (*wrong.values(), hidden)])
    costs = [points_lost(points) if wrong[call] else "" for call, points in zip(wrong, lost, strict=True)]
    return list(zip(record.stages, costs, strict=True)), points_lost(by_hidden) if by_hidden else ""


def how_far(page: Page, record: Record) -> None:
    """Write a line for each call of an unfinished file; nothing for a finished one."""
    if not record.is_unfinished:
        return
    page.heading("How far it is")
    if begin := how_to_begin(record):
        page.write(begin, indent=2)
        page.blank()
    task = max(len(call_stage.task) for call_stage in record.stages)
    call = max(len(call_stage.call) for call_stage in record.stages)
    marked = {Stage.WORKS: good, Stage.IN_WORK: bad, Stage.NOT_YET: dim}
    for call_stage in record.stages:
        words = marked[call_stage.stage](STAGE_WORDS[call_stage.stage])
        page.write(f"{call_stage.task:{task}}  {call_stage.call:{call}}  ", words, indent=2, hang=task + call + 4)


def how_far_briefly(page: Page, record: Record) -> None:
    """Write the calls of each stage in one line."""
    page.heading("How far it is")
    for stage in Stage:
        calls = ", ".join(call_stage.call for call_stage in record.stages if call_stage.stage is stage)
        if calls:
            page.write(f"{stage}: {calls}", indent=2, hang=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """What became of a submission since an earlier hand-in. Pairs are (before, now)."""

    submission: str
    verdict: tuple[Verdict, Verdict]
    score: tuple[int | None, int | None]
    """The scores before and now; None for a record without a score."""
    fixed: tuple[Cause, ...]
    """The causes that only the earlier record has, with their costs there."""
    new: tuple[Cause, ...]
    still: tuple[Cause, ...]
    """The causes that both records have, as they are in the later record."""

    @property
    def gain(self) -> int:
        """The points gained; 0 if one of the two records has no score."""
        before, now = self.score
        return now - before if before is not None and now is not None else 0

    @property
    def differs(self) -> bool:
        """Whether the submission became better or worse."""
        return bool(self.gain or self.fixed or self.new or self.verdict[0] is not self.verdict[1])


def progressed(before: Record, now: Record, audience: Audience) -> Progressed:
    """Compare the records of two hand-ins, as far as this reader may see their causes."""
    old, new = (_by_identity(released(record, audience).all_causes_for(audience)) for record in (before, now))
    return Progressed(
        submission=now.submission.name,
        verdict=(before.verdict, now.verdict),
        score=(before.score, now.score),
        fixed=tuple(old[key] for key in old if key not in new),
        new=tuple(new[key] for key in new if key not in old),
        still=tuple(new[key] for key in new if key in old),
    )


def _by_identity(causes: Iterable[Cause]) -> dict[tuple[str, str, str], Cause]:
    """Map `Cause.identity` to causes. Of causes with equal identity keep the first, with the sum of their points."""
    merged: dict[tuple[str, str, str], Cause] = {}
    for cause in causes:
        first = merged.get(cause.identity)
        merged[cause.identity] = cause if first is None else replace(first, points=first.points + cause.points)
    return merged
