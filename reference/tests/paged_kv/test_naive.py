"""The engine against a naive model: replies and states agree after each of 72,000 operations.

`scripts/test --all` goes on to 234,000.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pytest

from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotPoke
from reference.paged_kv import Engine, PagedKV
from reference.tests.paged_kv.naive import Misfit, Naive
from reference.tests.paged_kv.played import SEED, operation
from reference.tests.paged_kv.traffic import PROFILES, Profile, Traffic

CHUNKS = [(profile, chunk) for profile in PROFILES for chunk in range(2)]
MORE = [(profile, chunk) for profile in PROFILES for chunk in range(2, 6 if profile.name == "long" else 7)]
"""What takes too long for every run."""
BOTH_ENGINES = Trace(operations=(Operation(name="llm_destroy", target=2),), settings={"seed": SEED})


class Pair:
    """Both models, given the same operations; `reply` is the engine's last one."""

    def __init__(self) -> None:
        self.engine = PagedKV(BOTH_ENGINES)
        self.naive = Naive(SEED, 2)
        self.reply: Reply | None = None

    def disagreement(self, call: Operation) -> str:
        """Do one operation in both; tell what differs, or nothing."""
        arguments = tuple(argument if isinstance(argument, int) else None for argument in call.arguments)
        try:
            wanted = self.naive.apply(call.target, call.name, arguments)
        except Misfit:
            wanted = "does not fit"
        try:
            self.reply = self.engine.apply(call)
            found = self.reply.text
        except CannotPoke:
            self.reply = None
            found = "does not fit"
        if wanted != found:
            return f"naive replies {wanted!r}, the engine {found!r}"
        if self.reply is not None and self.reply.refused is not (wanted in ("NULL", "-1")):
            return f"the engine says refused={self.reply.refused} of {wanted!r}"
        here, there = self.naive.state(), self.engine.state()
        if here == there:
            return ""
        lines = zip(*(json.dumps(state, indent=0).splitlines() for state in (here, there)), strict=False)
        different = [f"naive {a}, engine {b}" for a, b in lines if a != b]
        return "; ".join(["states differ", *different[:3]])


def fails(calls: Sequence[Operation]) -> str:
    """The first disagreement over a whole trace, or nothing."""
    pair = Pair()
    return next((found for call in calls if (found := pair.disagreement(call))), "")


def shortest(calls: Sequence[Operation]) -> list[Operation]:
    """Leave out what can be left out of a failing trace, in ever smaller parts."""
    kept = list(calls)
    size = len(kept)
    while size:
        start = 0
        while start < len(kept):
            without = kept[:start] + kept[start + size :]
            if fails(without):
                kept = without
            else:
                start += size
        size //= 2
    return kept


def report(calls: Sequence[Operation]) -> str:
    """A failing trace, shortened, in the words of a case file, and what is wrong at its end."""
    kept = shortest(calls)
    return "\n".join(["the models disagree after", *map(str, kept), fails(kept)])


def play(rng: random.Random, profile: Profile) -> tuple[int, set[str]]:
    """Play one random trace; return how many operations it had and what they met."""
    pair = Pair()
    calls: list[Operation] = []
    met: set[str] = set()
    for call in Traffic(rng, profile, pair.naive).operations():
        calls.append(call)
        if pair.disagreement(call):
            pytest.fail(report(calls), pytrace=False)
        if pair.reply is not None:
            met.add(pair.reply.clause)
    return len(calls), met | pair.naive.met()


@pytest.mark.parametrize(("profile", "chunk"), CHUNKS, ids=[f"{profile.name}-{chunk}" for profile, chunk in CHUNKS])
def test_the_engine_agrees_with_a_naive_model(profile: Profile, chunk: int) -> None:
    """After every operation of a random trace, in reply and in state; and the mixture met what it is for."""
    agree(profile, chunk)


@pytest.mark.thorough
@pytest.mark.parametrize(("profile", "chunk"), MORE, ids=[f"{profile.name}-{chunk}" for profile, chunk in MORE])
def test_the_engine_agrees_with_a_naive_model_for_long(profile: Profile, chunk: int) -> None:
    """After each of 160,000 operations."""
    agree(profile, chunk)


def agree(profile: Profile, chunk: int) -> None:
    """Play all traces of this chunk."""
    rng = random.Random(f"{profile.name} {chunk}")
    traces = [play(rng, profile) for _ in range(profile.traces)]

    assert profile.traces * profile.operations == sum(count for count, _ in traces)
    assert frozenset() == profile.must_meet - {word for _, met in traces for word in met}


def test_at_least_60_000_operations_are_compared() -> None:
    """The mixtures add up; with the thorough ones they are more than 200,000."""
    assert sum(profile.traces * profile.operations for profile, _ in CHUNKS) >= 60_000
    assert sum(profile.traces * profile.operations for profile, _ in CHUNKS + MORE) >= 200_000


def forgets_to_copy(self: Engine, shared: int, new: int) -> None:
    """A copy-on-write without the copy."""
    assert new != shared
    self.ref_count[shared] -= 1


def last_fit(self: Engine, needed: int) -> list[int]:
    """The highest free blocks."""
    return [block for block in reversed(range(len(self.ref_count))) if self.ref_count[block] == 0][:needed]


def forgets_to_count(self: Engine, block: int) -> None:
    """A release that leaves free_local_blocks alone."""
    self.ref_count[block] -= 1


@pytest.mark.parametrize(
    ("place", "defect", "trace"),
    [
        ("engine.Engine._copy_on_write", forgets_to_copy, "llm_init create_sequence fork_sequence append_kv"),
        ("engine.Engine.first_fit", last_fit, "llm_init create_sequence"),
        ("engine.Engine.release_block", forgets_to_count, "llm_init create_sequence free_sequence"),
    ],
)
def test_a_defect_is_found_and_shown_by_a_minimal_trace(
    monkeypatch: pytest.MonkeyPatch, place: str, defect: Callable[..., object], trace: str
) -> None:
    """The comparison can fail, and what it prints is as short as it can be."""
    monkeypatch.setattr(f"reference.paged_kv.{place}", defect)
    with pytest.raises(pytest.fail.Exception, match="the models disagree after") as failure:
        play(random.Random(1), PROFILES[0])
    _, *lines, last = str(failure.value).splitlines()

    assert trace.split() == [operation(line).name for line in lines]
    assert last.startswith("states differ; naive ")
