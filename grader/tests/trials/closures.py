"""`python -m grader.tests.trials.closures [LAB]...`: every sample goes through all transitions of small engines.

No accepted sample may differ. Of the wrong ones it lists those that differ in no transition: what they do wrong cannot
be met there, such as a second L2 table, a leak, or an id check that ends at the 64th sequence. About ten minutes for
each lab.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grader.assignment.lab import Lab
from grader.core.closure import Covering
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab
from grader.search.hunt import checked, load_closure
from grader.tests.support.command import ROOT
from grader.tests.support.hunting import HOSTILE, player_of

_NOT_PLAYED = (Verdict.COMPILE_ERROR, Verdict.REJECTED)


def main(names: Sequence[str]) -> int:
    """Print what becomes of each, and return 1 if a right one differs."""
    return max([_tried(open_lab(name)) for name in names or LABS], default=0)


def _tried(lab: Lab) -> int:
    explored = load_closure(lab)
    assert explored is not None
    right, alike, of_wrong = [], [], 0
    for path in sorted((ROOT / "submissions" / lab.name).glob("*/*")):
        if not path.is_dir() or HOSTILE in path.name or path.parent.name in _NOT_PLAYED:
            continue
        with player_of(lab, path) as player:
            sentence, advice = checked(player, explored)
        name = f"{path.parent.name}/{path.name}"
        if path.parent.name == Verdict.ACCEPTED:
            silent = isinstance(explored, Covering) and not sentence
            right += [name] * (silent or bool(advice))
            continue
        of_wrong += 1
        if not advice:
            alike.append(name + ("" if sentence else " (its states cannot be kept, or no trace of its own fails)"))
    result = f"{of_wrong - len(alike)} of {of_wrong} wrong samples differ; right ones: {right or 'none'}"
    sys.stdout.write("\n".join([f"{lab.name}, {explored.transitions:,} transitions:", *alike, result, ""]))
    sys.stdout.flush()
    return 1 if right else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
