"""`python -m grader.tests.trials.closures`: every sample of paged_kv walks through the closure of the small engine.

No accepted sample may differ. Of the wrong ones it lists those that differ in no transition: what they do wrong cannot
be met there, such as a second L2 table, a leak, or an id check that ends at the 64th sequence. About ten minutes.
"""

from __future__ import annotations

import sys

from grader.assignment.closures import load_closure
from grader.core.verdict import Verdict
from grader.labs import open_lab
from grader.search.beyond import checked
from grader.tests.support.command import ROOT
from grader.tests.support.hunting import HOSTILE, player_of

_NOT_PLAYED = (Verdict.COMPILE_ERROR, Verdict.REJECTED)


def main() -> int:
    """Print what becomes of each, and return 1 if a right one differs."""
    lab = open_lab("paged_kv")
    closure = load_closure(lab)
    assert closure is not None
    differing, alike, of_wrong = [], [], 0
    for path in sorted((ROOT / "submissions" / lab.name).glob("*/*")):
        if not path.is_dir() or HOSTILE in path.name or path.parent.name in _NOT_PLAYED:
            continue
        with player_of(lab, path) as player:
            sentence, advice = checked(player, closure)
        name, is_right = f"{path.parent.name}/{path.name}", path.parent.name == Verdict.ACCEPTED
        of_wrong += not is_right
        if is_right and advice:
            differing.append(name)
        if not is_right and not advice:
            alike.append(name + ("" if sentence else " (its states cannot be kept, or no trace of its own fails)"))
    result = f"{of_wrong - len(alike)} of {of_wrong} wrong samples differ; right ones: {differing or 'none'}"
    sys.stdout.write("\n".join([*alike, result, ""]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
