"""A named part of a record: what a rule judges, a difference names, and a picture draws."""

from __future__ import annotations

from dataclasses import dataclass


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
    tolerance: float = 0.0
    """The largest difference of two fractions that counts as equal."""
    sentences: bool = False
    """Whether it is a list of sentences on what is wrong, of which a right program has none."""
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
