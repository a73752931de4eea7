"""stdout and stderr: streams that do not fail, messages, and the display of progress.

Most modules are imported where they are needed: the streams are set up before any import that may fail.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from grader.core.verdict import Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.table import Table

    from grader.classroom.workers import Graded

_OUT, _ERR = 1, 2
_MOST_COLUMNS = 1000
_EVERY_SECONDS = 5.0
"""The time between two plain lines of progress."""
_EVERY_PROGRAMS = 50
"""The number of programs between two plain lines, if it is unknown how long a program takes."""

_Result = TypeVar("_Result")


class _Lossy(io.FileIO):
    """A stream that drops what it cannot write: the reader has gone, the disk is full, or the terminal is closed."""

    def write(self, data: Any, /) -> int:
        """Write what can be written, and return the size of all the data."""
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


class _Noting(io.FileIO):
    """A stream that records that a write failed. An `OSError` does not say which stream it comes from."""

    failed = False

    def write(self, data: Any, /) -> int:
        """Write the data; record an `OSError` and raise it again."""
        try:
            return super().write(data)
        except OSError:
            _Noting.failed = True
            raise


def set_up() -> None:
    """Make sure that stdout and stderr can be written to.

    A character that the terminal's encoding lacks becomes a question mark on stdout and an escape on stderr. A standard
    descriptor that was closed is opened on /dev/null: otherwise the next file that is opened, such as a store, would
    get its number, and output would be written into that file.
    """
    for number in (0, _OUT, _ERR):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            _open_nowhere(number)
    sys.stdout = _stream(sys.stdout, _Noting(_OUT, "wb", closefd=False), errors="replace")
    sys.stderr = _stream(sys.stderr, _Lossy(_ERR, "wb", closefd=False), errors="backslashreplace", by_line=True)


def _stream(before: TextIO | None, raw: io.FileIO, *, errors: str, by_line: bool = False) -> TextIO:
    """Return a stream on `raw` to replace the standard stream `before`; return `before` itself if a test has set it."""
    if before is not None and not isinstance(before, io.TextIOWrapper):
        return before
    encoding, as_before = (before.encoding, before.line_buffering) if before is not None else ("utf-8", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=by_line or as_before
    )


def drop_what_failed() -> bool:
    """Return whether a write to stdout failed. If so, point stdout to /dev/null, so that Python does not report it."""
    if _Noting.failed:
        _open_nowhere(_OUT)
    return _Noting.failed


def _open_nowhere(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


def columns(piped: int) -> int:
    """Return the width of stdout: the value of COLUMNS, else the terminal's width, else `piped`."""
    return min(shutil.get_terminal_size((piped, 0)).columns, _MOST_COLUMNS)


def rows() -> int:
    """Return the height of stdout: the value of LINES, else the terminal's height, else 0."""
    return shutil.get_terminal_size((0, 0)).lines


def console() -> Console:
    """Return a console for tables on stdout, 160 columns wide unless it is a terminal or COLUMNS is set."""
    from rich.console import Console

    return Console(width=columns(160), highlight=False)


def table(title: str, *headings: str) -> Table:
    """Return a table for stdout with these columns, which wrap long words."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def is_live(stream: TextIO) -> bool:
    """Whether a line of the stream can be redrawn: on a terminal, unless TERM is `dumb`."""
    return stream.isatty() and not _is_dumb()


def is_colourful() -> bool:
    """Whether stdout may have colours: on a terminal or with FORCE_COLOR, unless NO_COLOR or TERM forbids it."""
    wanted = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    return wanted and not os.environ.get("NO_COLOR") and not _is_dumb()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")  # as rich does


def in_workflow() -> bool:
    """Whether a runner of GitHub reads the output, and executes lines that are workflow commands."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def complain(text: str) -> None:
    """Write an error message to stderr. The text is escaped: names in it may come from a student."""
    from grader.report.document import as_log
    from grader.report.escape import escape_lines

    shown = "\n".join(escape_lines(f"grade: {text}")) + "\n"
    sys.stderr.write(as_log(shown) if in_workflow() else shown)


def notify(text: str) -> None:
    """Write a line to stderr. The text is escaped: names in it may come from a student."""
    from grader.report.escape import escape

    sys.stderr.write(f"{escape(text)}\n")


@contextlib.contextmanager
def status(name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is done with `name`. It shows nothing if the terminal cannot redraw a line."""
    if not is_live(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    from grader.report.escape import escape

    def line(doing: str) -> Text:  # not markup, and escaped: a name may look like markup or control the terminal
        return Text(f"{escape(name)}: {doing}")

    with Console(stderr=True).status(line("starting")) as shown:
        yield lambda doing: shown.update(line(doing))


@dataclass(slots=True, kw_only=True)
class Progress:
    """The counts of a batch. Call it with a result and the number of submissions that share the result."""

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
        if task_result.stored is None:
            self.without += count
        elif task_result.stored.verdict != Verdict.ACCEPTED:
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
        """Return the counts and times that the bar itself does not show, in words."""
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
    """Show progress within the context, and yield the counts. They start at `done` and `failing`."""
    counted = Progress(total=total, done=done, failing=failing)
    if done == total:
        yield counted
    elif is_live(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn

        parts = (BarColumn(), MofNCompleteColumn(), TextColumn("done, {task.fields[rest]}"))
        with Bar(*parts, console=Console(stderr=True)) as counted.bar:
            counted.bar.add_task("", total=total, completed=done, rest=counted.rest())
            yield counted
    else:
        try:
            yield counted
        finally:
            counted.tell()


def counted(results: Iterable[_Result], total: int, doing: str) -> Iterator[_Result]:
    """Yield the results of `total` programs and show the progress. `doing` is one word, such as "trying"."""
    if is_live(sys.stderr):
        from rich.console import Console
        from rich.progress import track

        yield from track(results, doing, total=total, console=Console(stderr=True), transient=True)
        return
    for done, result in enumerate(results, start=1):
        yield result
        if done % _EVERY_PROGRAMS == 0 or done == total:
            notify(f"{doing}: {done} of {total} programs")


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02} h" if hours else f"{minutes}:{whole % 60:02} min"
