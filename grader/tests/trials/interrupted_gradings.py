"""`python -m grader.tests.trials.interrupted_gradings [KILLS]`: gradings that are ended at any moment; two minutes.

What must hold: after SIGKILL, 15 times at random moments of a grading's usual time, there is no record or a valid one,
and the next grading is as good as any. After each of SIGINT, SIGTERM and SIGHUP, at five moments, a grading has ended
with 130, or normally when it was finished before; nothing is left of it but a valid record. The ordinary tests do the
same at three moments each (test_interrupted.py).
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator

from grader.tests.support.command import SAMPLES
from grader.tests.support.interrupted import found, how_long, interrupted, killed, place, start, wait_for_silence

_KILLED, _INTERRUPTED = SAMPLES / "wrong_answer" / "last_fit", SAMPLES / "accepted" / "yoda_crlf"
_PARTS = (0.4, 0.6, 0.7, 0.8, 0.95)


def main(kills: int = 15) -> int:
    """Run the trial and print the results; return the exit code."""
    lines = [_kills(kills), *_interrupts()]
    for line, held in lines:
        sys.stdout.write(f"{'holds ' if held else 'BROKEN'}  {line}\n")
    return 0 if all(held for _, held in lines) else 1


def _kills(kills: int) -> tuple[str, bool]:
    with place() as folder:
        length = how_long(folder, _KILLED)
        chance = random.Random(7)
        seen = killed(folder, _KILLED, [length * (number + chance.random()) / kills for number in range(kills)])
        left = wait_for_silence(folder, 10)
        others = [path.name for path in folder.iterdir() if path.name != "tmp"]
        start(folder, _KILLED).communicate(timeout=60)
        last = found(folder)
    held = None in seen and not left and len(others) <= 3 and not any(name.endswith(".json") for name in others)
    return f"SIGKILL: complete records: {seen}, left: {left} {others}", held and last is not None and last.complete


def _interrupts() -> Iterator[tuple[str, bool]]:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with place() as folder:
            length = how_long(folder, _INTERRUPTED)
            codes = [interrupted(folder, _INTERRUPTED, number, length * part, working=False) for part in _PARTS]
            processes = wait_for_silence(folder, 2)
            left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "tmp"]
        # Python ends itself by SIGINT where an interrupt met an import that makes code; a shell calls that 130 too
        held = 130 in codes and {*codes} <= {130, 0, 1, -number, -signal.SIGINT}
        yield f"{number.name}: exit codes {codes}, left: {processes} {left}", held and not processes and not left


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
