"""Hidden cases that cost points: only rule and title, and what they test when no public case fails for the rule.

A public case that fails for the same rule shows the student what to fix. Where there is none, the report shows the
sentences of the handout that the hidden case tests: they reveal nothing about its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.core.record import HiddenLoss, Record, hidden_losses
from grader.core.verdict import Audience, Outcome
from grader.report.page import Page, dim, glued, strong
from grader.report.phrases import points_lost


def hidden_cases(page: Page, record: Record, audience: Audience, most: int) -> None:
    """Write the section, with at most `most` titles and sentences for each rule."""
    losses = _begun(page, record, audience)
    column = max((len(loss.rule) for loss in losses), default=0)
    for loss in losses:
        page.crop(f"{loss.rule:{column}}  ", dim("; ".join(titles(loss.outcomes, most))), indent=2)
        for sentence in sentences(loss, most):
            page.write(dim(sentence), indent=4 + column, hang=6 + column)


def hidden_briefly(page: Page, record: Record, audience: Audience, most: int) -> None:
    """Write the rules; titles and sentences only for rules for which no public case fails."""
    losses = _begun(page, record, audience)
    others = [glued(loss.rule) for loss in losses if not loss.alone]
    if others:
        page.write(dim(f"rules: {', '.join(others)}"), indent=2, hang=4)
    for loss in (loss for loss in losses if loss.alone):
        page.write(strong(loss.rule), f": {'; '.join(titles(loss.outcomes, most))}", indent=2, hang=4)
        for sentence in sentences(loss, most):
            page.write(dim(sentence), indent=4, hang=6)


def _begun(page: Page, record: Record, audience: Audience) -> list[HiddenLoss]:
    """Write how the section begins, if there is anything in it, and return what it is about."""
    losses = hidden_losses(record, audience)
    if losses:
        page.heading(hidden_head(record, audience))
        page.write(what_to_do(losses), indent=2)
    return losses


def hidden_head(record: Record, audience: Audience) -> str:
    """Return the heading: how many points hidden cases cost."""
    return f"Hidden cases cost {points_lost(record.hidden_points(audience))} in all"


def what_to_do(losses: list[HiddenLoss]) -> str:
    """Return what to do: fix public cases that fail for the same rules; where there are none, read the handout."""
    alone = [loss.rule for loss in losses if loss.alone]
    begin = "What they do is not shown."
    if not alone:
        return f"{begin} Public cases of the same rules fail too; fix those first."
    if len(alone) < len(losses):
        return f"{begin} Fix the public cases first; points of {', '.join(alone)} are lost in hidden cases only."
    return f"{begin} Only hidden cases cost points of these rules: read what the handout says."


def titles(outcomes: Sequence[Outcome], most: int) -> Iterator[str]:
    """Yield the titles of the first `most` cases, then how many more cases there are."""
    yield from dict.fromkeys(outcome.title for outcome in outcomes[:most])
    if len(outcomes) > most:
        yield f"and {len(outcomes) - most} more"


def sentences(loss: HiddenLoss, most: int) -> list[str]:
    """Return what the handout says about the cases, each sentence once; nothing where a public case fails."""
    if not loss.alone:
        return []
    if loss.handout:
        return [f"handout: {loss.handout}"]
    return list(dict.fromkeys(clause for outcome in loss.outcomes[:most] for clause in outcome.tested))[:most]
