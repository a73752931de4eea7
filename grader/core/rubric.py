"""The rubric: its rules, the points of each rule, and the facets of a record that its cases are judged on.

Rules are judged by their own cases, by the build, or by what is found in every case (leaks, memory errors). A program
that does nothing shows none of these findings. So a rule of the last kind earns no greater share of its points than the
*other rules* earned of theirs, rounded up. The other rules are those that are judged by their own cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from grader.core.verdict import Feedback, Judged


@dataclass(frozen=True, slots=True)
class Facet:
    """A part of the record of an operation, by which rules, differences, pictures and `grade explain` speak of it."""

    name: str
    """Its name in rubrics and known mistakes."""
    title: str = ""
    """Its heading in reports and pictures; empty: the name."""
    per: str = ""
    """What its entries belong to, for a list with an entry for each block ("block") or a mapping by request id
    ("request"). Differences are then told by entry: "block 3: ref". Empty: the value is compared as a whole."""
    path: str = ""
    """Where it stands in the record: "state.NAME" (the default), "reply" or a part of it such as "reply.hits" or
    "reply.0", or a pattern with one star for the entries that `per` names: "state.requests.*.blocks", "reply.*.0".
    "accepted" is whether a call did its work, "refused" whatever a call changed in the state although it refused."""
    absent: str = ""
    """What an entry counts as that a state leaves out, such as "0"; empty: such an entry is missing."""
    tolerance: float = 0.0
    """The largest difference of two fractions that counts as equal."""
    sentences: bool = False
    """Whether it is a list of sentences on what is wrong, of which a right program has none."""
    of_call: bool = False
    """Whether it tells what one call did and begins anew with the next, such as a log."""
    calls: tuple[str, ...] = ()
    """Of a reply, or of "accepted": the operations that it belongs to; empty: all that no other facet names."""

    @property
    def heading(self) -> str:
        """What reports call it."""
        return self.title or self.name

    @property
    def steps(self) -> tuple[str, ...]:
        """The path, step by step."""
        return tuple((self.path or f"state.{self.name}").split("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the rubric."""

    id: str
    points: int
    title: str
    handout: str
    facets: frozenset[str]
    judged: Judged
    calls: frozenset[str]
    """Only differences at these operations count; empty: at all operations."""
    allocated_by: frozenset[str]
    """Of lost memory only what these operations allocated counts; empty: all of it."""
    covers_cleanup: bool
    """Whether a crash in the clean-up that ends every case counts for this rule."""
    facets_at: frozenset[tuple[str, str]] = frozenset()
    """Facets that count at one operation, each with the operation."""

    @property
    def needs_whole_case(self) -> bool:
        """Whether it is judged on what a case leaves at its end."""
        return bool(self.allocated_by) or self.covers_cleanup

    def counts(self, facet: str, call: str) -> bool:
        """Whether a difference in this facet, at this operation, counts for the rule."""
        return (facet in self.facets and (not self.calls or call in self.calls)) or (facet, call) in self.facets_at

    def is_judged_at(self, call: str) -> bool:
        """Whether any difference at this operation counts for the rule."""
        at_all_calls = bool(self.facets) and (not self.calls or call in self.calls)
        return at_all_calls or any(call == other for _, other in self.facets_at)

    def counts_made_by(self, calls: frozenset[str]) -> bool:
        """Whether what these calls made, and is wrong at the end, counts for the rule; no calls: it is not known."""
        return not (self.allocated_by and calls) or bool(self.allocated_by & calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """When students see another part of their report."""

    feedback: Feedback
    start: datetime | None = None
    """It holds for gradings from then on; None: at any time."""
    hand_ins: int = 0
    """It holds from this hand-in of a student on; 0: for all, also where the number is not known."""

    def holds(self, time: datetime, hand_in: int | None) -> bool:
        """Whether it holds for a grading at this time of the hand-in with this number, None where it is not known."""
        return (self.start is None or self.start <= time) and self.hand_ins <= (hand_in or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """All rules, in the file's order, and what students see of their reports."""

    seed: int
    rules: tuple[Rule, ...]
    feedback: Feedback = Feedback.FULL
    """What students see where no release holds."""
    releases: tuple[Release, ...] = ()

    def feedback_at(self, time: datetime, hand_in: int | None = None) -> Feedback:
        """Return what students see of a grading at this time: the last release that holds says so."""
        holding = [release.feedback for release in self.releases if release.holds(time, hand_in)]
        return holding[-1] if holding else self.feedback

    @property
    def max_score(self) -> int:
        """The sum of the points of all rules."""
        return sum(rule.points for rule in self.rules)

    @property
    def ids(self) -> list[str]:
        """The ids of the rules."""
        return [rule.id for rule in self.rules]

    @property
    def judging(self) -> tuple[tuple[str, ...], ...]:
        """What decides how cases are judged, to be compared and hashed: all but points, titles, places and order."""
        rules = (
            (
                rule.id,
                rule.judged,
                f"covers_cleanup {rule.covers_cleanup}",
                *(f"facet {facet}" for facet in sorted(rule.facets)),
                *(f"call {call}" for call in sorted(rule.calls)),
                *(f"allocated by {call}" for call in sorted(rule.allocated_by)),
                *(f"facet {facet} at {call}" for facet, call in sorted(rule.facets_at)),
            )
            for rule in self.rules
        )
        return (f"seed {self.seed}",), *sorted(rules)

    def rule(self, rule_id: str) -> Rule:
        """Return the rule with that id; for "", which random traces have, one that counts what any rule counts.

        Raises `KeyError` when there is none.
        """
        for rule in self.rules if rule_id else (self._any,):
            if rule.id == rule_id:
                return rule
        raise KeyError(rule_id)

    @property
    def _any(self) -> Rule:
        pairs = frozenset[tuple[str, str]]().union(*(rule.facets_at for rule in self.rules))
        facets = frozenset[str]().union(*(rule.facets for rule in self.rules), (facet for facet, _ in pairs))
        nothing = frozenset[str]()
        return Rule(
            id="",
            points=0,
            title="",
            handout="",
            facets=facets,
            judged=Judged.CASES,
            calls=nothing,
            allocated_by=nothing,
            covers_cleanup=False,
        )

    def judged(self, judged: Judged, default: str = "") -> str:
        """Return the id of the only rule that is judged that way; not for `Judged.CASES`, which most rules have."""
        return next((rule.id for rule in self.rules if rule.judged is judged), default)
