"""Programs in Python go through all transitions of small engines; a difference becomes the shortest trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.core.closure import Covering
from grader.core.verdict import Advice
from grader.labs import LABS, open_lab
from grader.search.hunt import checked, load_closure
from grader.tests.support.chosen import few
from grader.tests.support.command import ROOT
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


def test_what_only_traces_of_one_process_do_to_each_other_is_no_advice(tmp_path: Path) -> None:
    """A module that counts the queues of its process: each trace alone is right, so nothing is said."""
    begun = "    def popleft(self):\n"
    shared = "    count = [0]\n\n" + begun + "        self.count[0] += 1\n        assert self.count[0] < 50\n"

    assert found_in(tmp_path, (begun, shared)) == ("", ())
