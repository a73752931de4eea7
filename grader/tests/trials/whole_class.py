"""`python -m grader.tests.trials.whole_class [COUNT] [KILLS]`: a class of 300, killed 20 times; about ten minutes.

What must hold of a batch of full size: a killed and resumed batch ends with the same records in its store as an
undisturbed one; a second run takes under 5 % of the time; the parent's memory does not grow with the class.
The ordinary tests do the same with a dozen counters (test_batch_killed.py).
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grader.tests.support.classes import killed_and_resumed, made_class, records, start
from grader.tests.support.same_result import same_result

_MOST_GROWTH = 1.25
_MOST_OF_FIRST = 0.05


def main(count: int = 300, kills: int = 20) -> int:
    """Run the trial and print the results; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="whole-class-") as name:
        place = Path(name)
        place.chmod(0o755)
        folder = made_class(place / "class", count)
        few = made_class(place / "few", max(1, count // 10))
        _, small = _run(few, place / "few.sqlite")
        first, large = _run(folder, place / "undisturbed.sqlite")
        again, _ = _run(folder, place / "undisturbed.sqlite")
        seen = killed_and_resumed(folder, place / "killed.sqlite", kills, "--jobs", "2")
        expected, made = records(place / "undisturbed.sqlite"), records(place / "killed.sqlite")
    differing = [one for one in expected if one not in made or not same_result(made[one], expected[one])]
    lines = (
        (f"killed {kills} times, records after each: {seen}", seen == sorted(seen)),
        (f"records that differ from the undisturbed run: {differing}", not differing and len(made) == count),
        (f"first run {first:.1f} s, second {again:.1f} s: {again / first:.1%}", again < _MOST_OF_FIRST * first),
        (f"parent's memory: {small} kB for {count // 10}, {large} kB for {count}", large < _MOST_GROWTH * small),
    )
    for line, held in lines:
        sys.stdout.write(f"{'holds ' if held else 'BROKEN'}  {line}\n")
    return 0 if all(held for _, held in lines) else 1


def _run(folder: Path, store: Path) -> tuple[float, int]:
    """Run a batch to its end; return the seconds, and the peak memory of its own process in kB."""
    started = time.monotonic()
    process = start(folder, store, "--jobs", "2")
    most = 0
    while True:
        with contextlib.suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8"))
            most = max(most, int(found[1]) if found else 0)
        try:
            process.communicate(timeout=0.2)
        except subprocess.TimeoutExpired:
            continue
        return time.monotonic() - started, most


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
