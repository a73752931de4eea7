"""The closure of a small engine is complete, right programs agree with it, and a difference becomes a trace."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

import pytest

from grader.core.closure import BACK, Closure, closure_of
from grader.labs import open_lab
from grader.labs.paged_kv.model import PagedKVModel
from grader.search.hunt import checked, load_closure
from grader.tests.support.command import ROOT, grade
from grader.tests.support.hunting import player_of
from reference.operation import Operation, Reply, Trace

_SAMPLES = ROOT / "submissions" / "paged_kv"
_UP, _DOWN, _RESET = (Operation(name=name) for name in ("up", "down", "reset"))


class Counter:
    """A small engine of five states, of which a record also has a part that decides nothing."""

    calls = (Operation(name="open"), _UP, _DOWN, _RESET)
    most = 1000

    def __init__(self) -> None:
        self.value, self.noise = 0, 0

    def apply(self, operation: Operation) -> Reply:
        """Count up to 4 and down to 0."""
        after = {"up": self.value + 1, "down": self.value - 1}.get(operation.name, 0)
        if not 0 <= after <= 4:
            return Reply(text="no", refused=True)
        self.value, self.noise = after, self.noise + 1
        return Reply(text="yes")

    def state(self) -> object:
        """Both."""
        return self.value, self.noise

    def restore(self, state: object) -> None:
        """Both."""
        assert isinstance(state, tuple)
        self.value, self.noise = state

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """The reply and the state."""
        assert operation in self.calls
        return f"{reply.text} {self.value} {self.noise % 7}".encode()

    def essence(self, record: bytes) -> bytes:
        """The value."""
        return record.split()[1]


def visited(closure: Closure) -> list[list[Operation]]:
    """The way to each state as the tour goes, checked step by step."""
    way: list[int] = []
    ways = []
    for step in closure.tour:
        if step == BACK:
            way.pop()
        else:
            way.append(step)
            ways.append([closure.calls[call] for call in way])
    assert way == []
    return ways


def test_every_state_is_met_once_by_the_fewest_calls() -> None:
    """And the tour goes the same ways."""
    closure = closure_of(Counter())

    assert (len(closure), closure.transitions) == (5, 15)
    assert [[call.name for call in closure.trace(state)[1:]] for state in range(5)] == [["up"] * n for n in range(5)]
    assert visited(closure) == [closure.trace(state) for state in range(5)]
    assert closure.trace(1, 2) == [*closure.trace(1), _DOWN]


def paged_kv() -> Closure:
    """That of homework 3."""
    closure = load_closure(open_lab("paged_kv"))
    assert isinstance(closure, Closure)
    return closure


def test_the_closure_of_homework_3_is_that_of_the_reference() -> None:
    """States differ from each other, and the judge's own reference makes the same records on the way to each."""
    closure = paged_kv()
    assert (len(closure), closure.transitions) == (11_905, 333_340)
    assert len(visited(closure)) == len(closure)
    for state in Random(1).sample(range(len(closure)), 40):
        total = 0
        for call in range(1, len(closure.calls)):
            trace = closure.trace(state, call)
            model = PagedKVModel(Trace(operations=tuple(trace)))
            for operation in trace:
                model.apply(operation)
            total = zlib.crc32(model.record(), zlib.crc32(bytes(8), total))
        assert total == closure.sums[state], closure.trace(state)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("wrong_answer/no_copy_on_write", "llm_init 192; create_sequence 1 1; fork_sequence 1 2; append_kv 1 7: "),
        ("wrong_answer/append_never_counts", "llm_init 192; create_sequence 1 1; append_kv 1 7: "),
        ("time_limit_exceeded/free_walk_spins_on_removed_node", "llm_init 192; create_sequence 1 1; free_sequence 1: "),
        ("run_time_error/remove_clears_links_first", "llm_init 192; create_sequence 1 1; free_sequence 1: "),
    ],
)
def test_a_wrong_program_fails_in_a_trace_of_its_own(name: str, calls: str) -> None:
    """The shortest one, also where it crashes or hangs on the way."""
    with player_of(open_lab("paged_kv"), _SAMPLES / name) as player:
        sentence, (advice,) = checked(player, paged_kv())

    assert sentence == ""
    assert calls in advice.message


def test_nothing_is_said_of_a_program_with_much_memory(tmp_path: Path) -> None:
    """Its states cannot be kept."""
    source = (_SAMPLES / "accepted" / "terse_with_macros" / "llm_memory.c").read_text()
    (tmp_path / "llm_memory.c").write_text(f"{source}\nint table_of_mine[100000];\n")
    with player_of(open_lab("paged_kv"), tmp_path) as player:
        assert checked(player, paged_kv()) == ("", ())


def test_a_report_says_what_a_search_adds() -> None:
    """Where everything is right, and where it is not; without a terminal only when asked."""
    right, wrong = _SAMPLES / "accepted" / "terse_with_macros", _SAMPLES / "wrong_answer" / "no_copy_on_write"

    assert "All 333,340 transitions of a small engine agree" in " ".join(grade("run", right, "--search").out.split())
    assert "transitions" not in grade("run", right).out
    searched = grade("run", wrong, "--search", "--case", "append/three_sharers").out
    assert "Smallest  llm_init" in searched
    assert "Smallest" not in grade("run", wrong, "--case", "append/three_sharers").out
