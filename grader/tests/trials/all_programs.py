"""`python -m grader.tests.trials.all_programs`: each case as a C program is silent beside each accepted sample, and
each wrong sample fails with the program of each of its causes.

scripts/test tries the first case of each task and rule, and one wrong sample for each mistake.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from grader.tests.support.graded import graded
from grader.tests.support.reproduced import (
    ACCEPTED,
    WRONG,
    Bench,
    cases,
    content_under_valgrind,
    fails_by_itself,
    shown_programs,
    silent,
)


def main() -> int:
    """Try all of them, with a line for each that does not do what it must."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        trials = list(_trials(Bench(Path(folder))))
        for number, (name, trial) in enumerate(trials, start=1):
            sys.stderr.write(f"\r{number} of {len(trials)}")
            try:
                trial()
            except AssertionError as error:
                failed += 1
                sys.stdout.write(f"\n{name}: {error}\n")
    sys.stdout.write(f"\n{len(trials) - failed} of {len(trials)} cases and samples are as they must be\n")
    return 1 if failed else 0


def _trials(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what is tried, by its name."""
    for case in cases().values():
        yield case.name, partial(silent, bench, case, ACCEPTED)
    for source in ACCEPTED:
        yield source.parent.name, partial(content_under_valgrind, bench, source)
    for sample in WRONG:
        yield sample.name, partial(_all_fail, bench, sample)


def _all_fail(bench: Bench, sample: Path) -> None:
    programs = shown_programs(graded("paged_kv", sample))
    assert programs
    fails_by_itself(bench, sample, programs)


if __name__ == "__main__":
    sys.exit(main())
