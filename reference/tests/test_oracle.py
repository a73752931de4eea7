"""What every engine has: calls by name, refusals, and the sentences that decide."""

from __future__ import annotations

import pytest

from reference.block_pool import Manager
from reference.hybrid import Hybrid
from reference.operation import Operation, Reply
from reference.oracle import Engine, Plain, Refused
from reference.scheduler import Scheduler


class Counter(Engine):
    """Counts up to two."""

    count = 0

    def up(self, by: int) -> int:
        """Count."""
        self.because("1/up")
        if self.count + by > 2:
            raise Refused("ValueError", "1/most")
        self.count += by
        return self.count

    def state(self) -> dict[str, Plain]:
        """The count."""
        return {"count": self.count}

    def restore(self, state: dict[str, Plain]) -> None:
        """Take a count over."""
        assert isinstance(state["count"], int)
        self.count = state["count"]


def up(by: int) -> Operation:
    """The operation."""
    return Operation(name="up", arguments=(by,))


def test_a_reply_has_the_sentence_that_decided() -> None:
    """It is the last one that the engine named."""
    counter = Counter()

    assert counter.apply(up(2)) == Reply(text="2", clause="1/up")


def test_a_refusal_has_its_own_sentence_and_changes_nothing() -> None:
    """And nothing of the call before stays."""
    counter = Counter()
    counter.apply(up(2))

    refused = counter.apply(up(1))

    assert refused == Reply(text="ValueError", refused=True, clause="1/most")
    assert counter.state() == {"count": 2}


def test_an_error_of_the_engine_is_no_refusal() -> None:
    """It is the grader's own fault and must be seen."""
    with pytest.raises(TypeError):
        Counter().apply(Operation(name="up", arguments=()))


@pytest.mark.parametrize("engine", [Manager, Scheduler, Hybrid])
def test_an_engine_holds_nothing_that_only_a_diagnosis_needs(engine: type[Engine]) -> None:
    """The labs' oracles add these parts."""
    added = {"back", "loose", "earlier", "args", "ids", "shared", "spoiled", "spoils", "intact"}

    assert not added & engine().state().keys()
