"""Programs in Python go through all transitions of small engines; a difference becomes the shortest trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.core.covering import Covering
from grader.core.verdict import Advice
from grader.labs import LABS, open_lab
from grader.search.beyond import checked, load_closure
from grader.tests.support.chosen import few
from grader.tests.support.command import ROOT, grade
from grader.tests.support.hunting import accepted, player_of

_PYTHON = [name for name, entry in LABS.items() if entry.source_name.endswith(".py")]
_QUEUE = "block_pool/accepted/short_functional"


def covering_of(name: str) -> Covering:
    """What is checked of the submissions of a lab."""
    covering = load_closure(open_lab(name))
    assert isinstance(covering, Covering)
    return covering


def found_in(folder: Path, *changes: tuple[str, str]) -> tuple[str, tuple[Advice, ...]]:
    """What is said of a right block_pool.py with texts replaced."""
    text = (ROOT / "submissions" / _QUEUE / "block_pool.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "block_pool.py").write_text(text, encoding="utf-8")
    with player_of(open_lab("block_pool"), folder) as player:
        return checked(player, covering_of("block_pool"))


@pytest.mark.parametrize("name", few(_PYTHON))
def test_a_right_program_agrees_in_all_of_it(name: str) -> None:
    """The trial `closures` asks all of them; no trace makes a call that the lab's random traces do not make."""
    lab, covering = open_lab(name), covering_of(name)
    with player_of(lab, accepted(lab)[0]) as player:
        sentence, advice = checked(player, covering)
        outside = [trace for trace in covering.generated.traces if not player.domain.has(trace)]

    assert f"All {covering.transitions:,} transitions of {covering.engines} small engines agree" in sentence
    assert advice == ()
    assert outside == []
    assert covering.transitions > 2000


def test_a_defect_of_one_transition_is_shown_by_the_shortest_trace(tmp_path: Path) -> None:
    """A queue that is wrong only where three of four blocks are taken out at once."""
    wrong = "        if n == 3 and self.num_free_blocks == 4:\n            taken.reverse()\n        if taken:\n"
    sentence, (advice,) = found_in(tmp_path, ("        if taken:\n", wrong))

    assert sentence == ""
    assert "costs no point: queue 4 [2,0]; append_n [" in advice.message
    assert "]; popleft_n 3: " in advice.message
    assert advice.message.count(";") == 2


def test_a_defect_that_needs_a_longer_way_is_shown_too(tmp_path: Path) -> None:
    """A queue whose ninth append_n is lost: none of the shortest traces has so many."""
    begun = "    def append_n(self, blocks):\n"
    lost = "        self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls == 9:\n            return\n"
    sentence, (advice,) = found_in(tmp_path, (begun, begun + lost))

    assert sentence == ""
    assert "append_n returned null, expected RuntimeError" in advice.message
    assert 8 <= advice.message.count(";") < 12


def test_what_only_traces_of_one_process_do_to_each_other_is_no_advice(tmp_path: Path) -> None:
    """A module that counts the queues of its process: each trace alone is right, so nothing is said."""
    begun = "    def popleft(self):\n"
    shared = "    count = [0]\n\n" + begun + "        self.count[0] += 1\n        assert self.count[0] < 50\n"

    assert found_in(tmp_path, (begun, shared)) == ("", ())


def test_a_report_says_so() -> None:
    """Where it was asked, or in a terminal."""
    right = ROOT / "submissions" / _QUEUE

    assert "small engines agree: the calls" in " ".join(grade("run", right, "--search").out.split())
    assert "small engines" not in grade("run", right).out
