"""`python -m grader.tests.trials.many_damaged_stores [COUNT]`: each command on 1000 damaged stores; a minute.

What must hold: every command that reads stores ends with an exit code from 0 to 3 on each damaged copy of a store, says
something with 2 and 3, and never that the grader broke. The ordinary tests damage 100 copies (test_store_damage.py).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.damaged_stores import COMMANDS, ends_on_damaged, graded_class


def main(count: int = 1000) -> int:
    """Run the trial and print the results; return the exit code."""
    wrong = codes = 0
    with tempfile.TemporaryDirectory(prefix="damaged-stores-") as name, counters_in_process():
        for end in ends_on_damaged(graded_class(Path(name)), count):
            silent = end.code in (2, 3) and not (end.err + end.out).strip()
            if "the grader broke" in end.err or end.code not in range(4) or silent:
                wrong += 1
                sys.stdout.write(f"BROKEN  copy {end.number}, {' '.join(end.words)}: {end.code} {end.err}\n")
            codes |= 1 << end.code
    sys.stdout.write(f"{count * len(COMMANDS)} commands on {count} damaged stores, {wrong} of which do not hold\n")
    return 1 if wrong or codes != 0b1111 else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
