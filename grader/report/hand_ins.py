"""What became of the causes of one hand-in in a later one: fixed, new, or still there (see `Cause.identity`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Verdict
from grader.report.released import released


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """What became of a submission."""

    submission: str
    verdict: tuple[Verdict, Verdict]
    score: tuple[int | None, int | None]
    """Before and now; None without a score."""
    fixed: tuple[Cause, ...]
    """Causes of before that are gone, with what they cost then."""
    new: tuple[Cause, ...]
    still: tuple[Cause, ...]
    """Causes of both, as they are now."""

    @property
    def gain(self) -> int:
        """The points gained; 0 where one of both has no score."""
        before, now = self.score
        return now - before if before is not None and now is not None else 0

    @property
    def differs(self) -> bool:
        """Whether anything became better or worse."""
        return bool(self.gain or self.fixed or self.new or self.verdict[0] is not self.verdict[1])


def progressed(before: Record, now: Record, audience: Audience) -> Progressed:
    """Return what became of the causes that this reader may see."""
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
    """Return the causes by what identifies them; of the same ones the first, with the points of all."""
    merged: dict[tuple[str, str, str], Cause] = {}
    for cause in causes:
        first = merged.get(cause.identity)
        merged[cause.identity] = cause if first is None else replace(first, points=first.points + cause.points)
    return merged
