"""The progress of a batch: a live line on a terminal that can redraw it, elsewhere a plain line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grader.classroom.workers import Graded
from grader.cli.terminal import is_live
from grader.core.verdict import Verdict

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_EVERY_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class Progress:
    """The counts. Call it with what was graded, and for how many submissions that counts."""

    total: int
    done: int
    failing: int
    bar: Bar | None = None
    without: int = 0
    graded: int = 0
    """Submissions graded since the start of this command."""
    started: float = field(default_factory=time.monotonic)
    last_report: float = field(default_factory=time.monotonic)

    def __call__(self, task_result: Graded, count: int) -> None:
        """Update the counts and the display."""
        self.graded += count
        self.done += count
        if task_result.kept is None:
            self.without += count
        elif task_result.kept.verdict != Verdict.ACCEPTED:
            self.failing += count
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, rest=self.rest())
        elif time.monotonic() - self.last_report >= _EVERY_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Write a line with all counts."""
        self.last_report = time.monotonic()
        sys.stderr.write(f"{self.done} of {self.total} done, {self.rest()}\n")

    def rest(self) -> str:
        """Return the counts and times that a bar does not show."""
        rate = self.graded / max(time.monotonic() - self.started, 1e-3)
        parts = [f"{self.failing} failing"]
        if self.without:
            parts.append(f"{self.without} without a score")
        if self.graded:
            parts.append(f"{rate:.1f} a second")
        if self.graded and self.done < self.total:
            parts.append(f"{_span((self.total - self.done) / rate)} left")
        return ", ".join(parts)


@contextlib.contextmanager
def progress(total: int, *, done: int, failing: int) -> Iterator[Progress]:
    """Yield the counts, starting with those of the run."""
    counted = Progress(total=total, done=done, failing=failing)
    if done == total:
        yield counted
    elif is_live(sys.stderr):
        with _bar() as counted.bar:
            counted.bar.add_task("", total=total, completed=done, rest=counted.rest())
            yield counted
    else:
        try:
            yield counted
        finally:
            counted.tell()


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("done, {task.fields[rest]}"))
    return Progress(*columns, console=Console(stderr=True))


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02} h" if hours else f"{minutes}:{whole % 60:02} min"
