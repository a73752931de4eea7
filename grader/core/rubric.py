"""The rubric: its rules, the points of each rule, and the facets of a record that its cases are judged on.

A rule is judged by its own cases, by the build, or by findings in any case (leaks, memory errors). A program that does
nothing has no such findings. So a rule of the last kind earns at most the share of its points (rounded up) that the
rules with cases of their own earned together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from grader.core.verdict import Feedback, Judged


@dataclass(frozen=True, slots=True)
class Facet:
    """A named part of an operation's record. Rules, differences, pictures and `grade explain` use the name."""

    name: str
    """Its name in rubrics and known mistakes."""
    title: str = ""
    """Its heading in reports and pictures; empty: the name."""
    per: str = ""
    """The thing that each entry belongs to: "block" for a list with an entry for each block, "request" for a mapping by
    request id. Differences are then reported by entry: "block 3: ref". Empty: the value is compared as a whole."""
    path: str = ""
    """Its path in the record: "state.NAME" (the default), "reply" or a part of it such as "reply.hits" or
    "reply.0", or a path in which one star matches the entries that `per` names: "state.requests.*.blocks".
    "accepted" is whether a call did its work, "refused" is every change of the state by a call that refused."""
    absent: str = ""
    """The value that an omitted entry has, such as "0"; empty: an omitted entry is reported as missing."""
    tolerance: float = 0.0
    """The largest difference of two fractions that counts as equal."""
    sentences: bool = False
    """Whether the facet is a list of sentences that say what is wrong; a right program has an empty list."""
    of_call: bool = False
    """Whether the facet describes one call only, such as a log, and is empty again before the next call."""
    calls: tuple[str, ...] = ()
    """For a reply or "accepted": the operations that have this facet; empty: all that no other facet names."""

    @property
    def heading(self) -> str:
        """The name that reports use."""
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
    """Only lost memory that these operations allocated counts; empty: all lost memory."""
    covers_cleanup: bool
    """Whether a crash in the clean-up that ends every case counts for this rule."""
    facets_at: frozenset[tuple[str, str]] = frozenset()
    """Pairs (facet, operation): the facet counts only at this operation."""

    @property
    def needs_whole_case(self) -> bool:
        """Whether the rule is judged on the state at the end of a case."""
        return bool(self.allocated_by) or self.covers_cleanup

    def counts(self, facet: str, call: str) -> bool:
        """Whether a difference in this facet, at this operation, counts for the rule."""
        return (facet in self.facets and (not self.calls or call in self.calls)) or (facet, call) in self.facets_at

    def is_judged_at(self, call: str) -> bool:
        """Whether any difference at this operation counts for the rule."""
        at_all_calls = bool(self.facets) and (not self.calls or call in self.calls)
        return at_all_calls or any(call == other for _, other in self.facets_at)

    def counts_made_by(self, calls: frozenset[str]) -> bool:
        """Whether a fault at the end of a case counts if these calls caused it; empty `calls`: the cause is unknown."""
        return not (self.allocated_by and calls) or bool(self.allocated_by & calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Which part of their report students see (`feedback`), from a time or from a hand-in on."""

    feedback: Feedback
    start: datetime | None = None
    """The release holds for gradings from this time on; None: always."""
    hand_ins: int = 0
    """The release holds from this hand-in of a student on; 0: for all, even if the number is unknown."""

    def holds(self, time: datetime, hand_in: int | None) -> bool:
        """Whether the release holds for a grading at `time` of the hand-in with this number (None: unknown)."""
        return (self.start is None or self.start <= time) and self.hand_ins <= (hand_in or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """All rules, in the file's order, and what students see of their reports."""

    seed: int
    rules: tuple[Rule, ...]
    feedback: Feedback = Feedback.FULL
    """What students see if no release holds."""
    releases: tuple[Release, ...] = ()

    def feedback_at(self, time: datetime, hand_in: int | None = None) -> Feedback:
        """Return what students see of a grading at `time`: the feedback of the last release that holds."""
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
        """All that affects how cases are judged, to compare and hash. Points, titles, places and order do not."""
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
        """Return the rule with that id; for "" (random traces) a rule that counts the facets of all rules.

        Raises `KeyError` if there is no such rule.
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
        """Return the id of the only rule judged this way (not `Judged.CASES`, which many rules have), or `default`."""
        return next((rule.id for rule in self.rules if rule.judged is judged), default)
