"""`grade run` from the shell, by process and stage: lines of CPU time that add up to the whole.

The scripts run as they are, but for the last line of `scripts/grade`: there the interpreter runs `marks.py`, which runs
the grader and notes what its parts use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from grader.bench.figures import Candidate, Figure, FigureGroup, cpu_of, ratio
from grader.core.errors import DriverError
from grader.system import process
from grader.system.process import Patience

SHELL_RUN, SCRIPTS = "`grade run` from the shell", "scripts/grade and scripts/setup"
START = "interpreter: start"

_PYTHON, _STARTED = 'exec "', '-m grader "$@"'
_MARKS = Path(__file__).with_name("marks.py")
_LEAST = 0.01
"""G: what takes less is added up in one line."""


@dataclass(frozen=True, slots=True)
class ShellRun:
    """`scripts/grade run` of a submission, and what its runs have used so far."""

    scripts: Path
    """The folder of scripts."""
    submission: Path
    notes: Path
    """A file to write to."""
    parts: list[dict[str, float]] = field(default_factory=list)
    """Of each run the CPU seconds by part; what is left over is missing."""

    def candidates(self) -> list[Candidate]:
        """Return the whole, and the scripts alone, for the same rounds."""
        return [Candidate(SHELL_RUN, self.run), Candidate(SCRIPTS, self.look)]

    def run(self) -> None:
        """Grade."""
        whole = cpu_of(partial(self._shell, _STARTED, f'"{_MARKS}" "{self.notes}" "$@"', (0, 1)))
        self.parts.append(_parts(json.loads(self.notes.read_text(encoding="utf-8")), whole))

    def look(self) -> None:
        """Run the scripts up to the start of the interpreter."""
        self._shell(_PYTHON, f"exit; {_PYTHON}", (0,))

    def _shell(self, before: str, after: str, codes: tuple[int, ...]) -> None:
        """Run `scripts/grade` with these words replaced. Raises `DriverError` when it does not end as it must."""
        script = self.scripts / "grade"
        text = script.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise DriverError(f"{script} does not have {before} once, so it cannot be measured")
        done = process.run(
            ["sh", "-c", text.replace(before, after), str(script), "run", str(self.submission.absolute())],
            cwd=Path("/"),
            limits=Patience(wall_seconds=300),
            environment={name: os.environ[name] for name in ("PATH", "HOME", "PAGED_KV_VENV") if name in os.environ},
        )
        if done.exit_code not in codes:
            raise DriverError(f"scripts/grade: {done.stderr.decode(errors='replace')}")

    def group(self, taken: Mapping[str, list[float]]) -> FigureGroup:
        """Return the whole and its lines; `taken` has the CPU seconds of G and of the candidates in each round."""
        unit, scripts = taken["G"], taken[SCRIPTS]
        whole = ratio("the whole / G", taken[SHELL_RUN], unit)
        rows = [
            {SCRIPTS: alone, **parts, START: parts[START] - alone}
            for parts, alone in zip(self.parts[-len(unit) :], scripts, strict=True)
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        lines = {name: ratio(f"{name} / G", [row.get(name, 0.0) for row in rows], unit) for name in names}
        shown = [line for line in lines.values() if line.value >= _LEAST]
        small = [name for name, line in lines.items() if line.value < _LEAST]
        shown += [
            ratio(f"{len(small)} smaller ones / G", [sum(row.get(name, 0.0) for name in small) for row in rows], unit)
        ]
        left = whole.value - sum(line.value for line in shown)
        unexplained = Figure(name="unexplained / G", value=left, low=left, high=left)
        return FigureGroup(f"{SHELL_RUN}, by process and stage", (whole, *shown, unexplained))


def _parts(notes: Mapping[str, Any], whole: float) -> dict[str, float]:
    """Return the CPU seconds of a run by part; the start includes the scripts, which ran in the same process before."""
    own = notes["own"]
    return {
        START: notes["start"] + notes["before"],
        **own,
        **{f"program {name}": seconds for name, seconds in notes["programs"].items()},
        "interpreter: end": whole - notes["start"] - sum(own.values()) - notes["children"],
    }
