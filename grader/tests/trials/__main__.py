"""`python -m grader.tests.trials [NAME]...`: all trials, or these, one after the other: hours.

At the end there is a line for each trial with its result and the time that it took. A trial that this machine cannot
run is skipped. Ctrl-C ends the current trial and shows the lines of those before it. The exit code is 1 when a trial
failed and 130 after Ctrl-C. What a trial does, and its options, are in its module's docstring.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A module of this package that is started as a program."""

    name: str
    needs: tuple[str, ...] = ()
    """`root`, and programs."""
    folder: bool = False
    """Whether its argument is a folder for what it makes."""

    @property
    def lacks(self) -> list[str]:
        """What it needs and this machine does not have."""
        return [need for need in self.needs if not _has(need)]

    def run(self) -> int:
        """Run it to its end and return its exit code."""
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-") as folder:
            arguments = [folder] if self.folder else []
            return subprocess.run(
                [sys.executable, "-I", "-m", f"{__package__}.{self.name}", *arguments], check=False
            ).returncode


def _has(need: str) -> bool:
    return os.geteuid() == 0 if need == "root" else shutil.which(need) is not None


TRIALS = (
    Trial(name="block_pool_peer"),
    Trial(name="scheduler_peer"),
    Trial(name="hybrid_peer"),
    Trial(name="many_damaged_stores"),
    Trial(name="interrupted_gradings"),
    Trial(name="standard_library"),
    Trial(name="other_numbers"),
    Trial(name="closures"),
    Trial(name="lanes"),
    Trial(name="smallest_traces"),
    Trial(name="failing_stages"),
    Trial(name="lines_by_mending"),
    Trial(name="whole_class"),
    Trial(name="fault_trials", needs=("root",)),
    Trial(name="hostile_levels", needs=("root", "bwrap")),
    Trial(name="hostile_python_levels", needs=("root", "bwrap")),
    Trial(name="bundles_set_up"),
    Trial(name="gradescope_life", needs=("root", "debootstrap")),
    Trial(name="arm64", needs=("root", "apt-get", "qemu-system-aarch64", "cpio"), folder=True),
    Trial(name="fresh_machines", needs=("root", "debootstrap"), folder=True),
    Trial(name="kill_table", folder=True),
)
"""Every trial; most of the short ones come first."""


def main() -> int:
    """Run them and print what each of them cost."""
    parser = argparse.ArgumentParser(
        prog="python -m grader.tests.trials",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a module of this folder, such as whole_class")
    names = parser.parse_args().names
    if unknown := set(names) - {trial.name for trial in TRIALS}:
        known = ", ".join(trial.name for trial in TRIALS)
        parser.error(f"no trial is named {' or '.join(sorted(unknown))}; there are {known}")
    trials = [trial for trial in TRIALS if not names or trial.name in names]
    results: list[tuple[Trial, int | None, float]] = []
    interrupted = False
    for number, trial in enumerate(trials, start=1):
        sys.stdout.write(f"\n---- trial {number} of {len(trials)}: {trial.name}\n")
        sys.stdout.flush()
        started = time.monotonic()
        try:
            code = None if trial.lacks else trial.run()
        except KeyboardInterrupt:
            interrupted = True
            break
        results.append((trial, code, time.monotonic() - started))
    sys.stdout.write("\n".join(["", "Trials:", *(_line(*result) for result in results), ""]))
    return _INTERRUPTED if interrupted else int(any(code for _, code, _ in results))


def _line(trial: Trial, code: int | None, seconds: float) -> str:
    if code is None:
        return f"skipped  {trial.name}: this machine lacks {' and '.join(trial.lacks)}"
    result = f"exit {code}" if code else "passed"
    return f"{result:8} {trial.name}, {int(seconds) // 60}:{int(seconds) % 60:02} minutes"


if __name__ == "__main__":
    sys.exit(main())
