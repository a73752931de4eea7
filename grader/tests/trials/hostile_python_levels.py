"""Hostile Python programs at all levels.

    python -m grader.tests.trials.hostile_python_levels [--only TEXT]... [NAME]...

Each program of tests/runtime/python/hostile is graded at each level of protection, as root and as an ordinary user (see
`trials.hostile_levels`). What must hold is what `support.hostile_python` looks for, and that each takes at most 10 s by
the clock. It prints a line for each machine, and for each program that does not hold; the exit code is 1 when there is
one. It needs root, a quiet machine, `bwrap` for two machines, and 3 minutes for each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from operator import itemgetter

from grader.tests.support.hostile_python import MOST_SECONDS, graded_on, programs
from grader.tests.support.machines import MACHINES, ROOT_ONLY, Machine

_ALL = (*MACHINES, ROOT_ONLY)


def main() -> int:
    """Grade the programs on the selected machines; return 0 when all hold, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(machine.name for machine in _ALL)])
    asked = parser.parse_args()
    only = [name for name in programs() if not asked.only or any(text in name for text in asked.only)]
    machines = [machine for machine in _ALL if not asked.names or machine.name in asked.names]
    wrong = [problem for machine in machines for problem in _on(machine, only)]
    sys.stdout.write("\n".join(wrong or ["all of them hold"]) + "\n")
    return int(bool(wrong))


def _on(machine: Machine, names: list[str]) -> Iterator[str]:
    """Yield the problems on such a machine."""
    try:
        graded = graded_on(machine, names)
    except AssertionError as error:
        yield f"{machine.name}: {error}"
        return
    worst = {key: max(graded, key=itemgetter(key)) for key in ("cpu", "wall")}
    most = "; ".join(f"{key} {program[key]:.1f} s ({program['name']})" for key, program in worst.items())
    sys.stdout.write(f"{machine.name}: {len(graded)} programs; most: {most}\n")
    sys.stdout.flush()
    for program in graded:
        if program["wall"] > MOST_SECONDS:
            program["problems"].append(f"{program['wall']:.1f} s by the clock")
        yield from (f"{machine.name}: {program['name']}: {problem}" for problem in program["problems"])


if __name__ == "__main__":
    sys.exit(main())
