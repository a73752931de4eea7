"""Hidden cases that cost points: rule and title, no more; where nothing else fails for a rule, also what they test.

Where a public case fails for the rule too, that case shows the way. Where none does, the handout's sentences that the
case tests are shown: they tell nothing of its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.core.causes import Audience, HiddenLoss, clauses_of, hidden_losses, is_hidden
from grader.core.record import Record
from grader.core.verdict import Outcome
from grader.report.page import Page, dim, glued, strong
from grader.report.words import points_about

__all__ = ["MOST_TITLES", "hidden_briefly", "hidden_cases", "hidden_head", "sentences", "titles", "what_to_do"]

MOST_TITLES = 6


def hidden_cases(page: Page, record: Record, audience: Audience, most: int = MOST_TITLES) -> None:
    """Write the section, with so many titles of each rule."""
    losses = hidden_losses(record, audience)
    if not losses:
        return
    page.heading(hidden_head(record, losses, audience))
    page.write(what_to_do(losses), indent=2)
    column = max(len(loss.rule) for loss in losses)
    for loss in losses:
        begin = f"{len(loss.outcomes):>3}  {loss.rule:{column}}  "
        page.crop(begin, dim("; ".join(titles(loss.outcomes, most))), indent=1)
        for sentence in sentences(loss, most) if loss.alone else ():
            page.write(dim(sentence), indent=1 + len(begin), hang=3 + len(begin))


def hidden_briefly(page: Page, record: Record, audience: Audience, most: int) -> None:
    """Write how many cases of which rules; titles and sentences of those alone that no public case leads to."""
    losses = hidden_losses(record, audience)
    if not losses:
        return
    page.heading(hidden_head(record, losses, audience))
    page.write(what_to_do(losses), indent=2)
    others = [glued(f"{loss.rule} {len(loss.outcomes)}") for loss in losses if not loss.alone]
    if others:
        page.write(dim(f"cases by rule: {', '.join(others)}"), indent=2, hang=4)
    for loss in losses:
        if loss.alone:
            page.write(strong(loss.rule), f": {'; '.join(titles(loss.outcomes, most))}", indent=2, hang=4)
            for sentence in sentences(loss, most):
                page.write(dim(sentence), indent=4, hang=6)


def hidden_head(record: Record, losses: list[HiddenLoss], audience: Audience) -> str:
    """How many of them cost how much."""
    failing = {one.case for loss in losses for one in loss.outcomes}
    hidden = sum(is_hidden(outcome, audience) for outcome in record.outcomes)
    points = points_about(sum(loss.points for loss in losses))
    return f"Hidden cases: points lost in {len(failing)} of {hidden}, {points} in all"


def what_to_do(losses: list[HiddenLoss]) -> str:
    """Where public cases fail for the same rules they are the way to them; else there is no other."""
    alone = [loss.rule for loss in losses if loss.alone]
    said = "What they do is not shown."
    if not alone:
        return f"{said} Public cases of the same rules fail too; fix those first."
    if len(alone) < len(losses):
        return f"{said} Fix the public cases first; points of {', '.join(alone)} are lost in hidden cases only."
    return f"{said} Only hidden cases cost points of these rules: read what the handout says."


def titles(outcomes: Sequence[Outcome], most: int) -> Iterator[str]:
    """The titles of some, and how many more there are."""
    yield from dict.fromkeys(one.title for one in outcomes[:most])
    if len(outcomes) > most:
        yield f"and {len(outcomes) - most} more"


def sentences(loss: HiddenLoss, most: int) -> list[str]:
    """What the handout says of it, each sentence once."""
    if loss.handout:
        return [f"handout: {loss.handout}"]
    return list(dict.fromkeys(said for one in loss.outcomes[:most] for said in clauses_of(one)))[:most]
