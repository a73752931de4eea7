"""Defects planted in the grader while pytest runs: which tests execute a line, and which catch a change of it.

Plugins for pytest, used by `grader.tests.trials.kill_table`. All tests are collected once; each defect is tried
in a child process (fork), where the functions that it changes get the changed code. So a defect costs what its tests
cost. Tests that start processes see the changed file.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest

CONTEXT = "KILL_TABLE_TEST"
"""The variable by which processes that a test starts know the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A change of one place in a file of the grader."""

    file: str
    line: int
    column: int
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of a defect."""

    defect: Defect
    caught_by: tuple[str, ...] = ()
    """The tests that failed, cheap ones first."""
    tests: int = 0
    """The number of tests that ran."""
    complete: bool = True
    """Whether all tests ran that execute the line, or one caught it."""

    @property
    def text(self) -> str:
        """A line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def test_of(item: pytest.Item) -> str:
    """Return the name of a test: its file and function, without parameters."""
    return item.nodeid.partition("[")[0]


class Measuring:
    """Tells coverage which test runs, and keeps what each costs: `file` gets a line for each.

    A test that fails without a defect has no costs, and so it is never tried.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that the test that runs has failed."""
        self.failed = self.failed or report.failed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the context of this process and of those that it starts."""
        os.environ[CONTEXT] = test_of(item)
        current = coverage.Coverage.current()
        if current is not None:
            current.switch_context(test_of(item))
        self.failed, started = False, time.perf_counter()
        result = yield
        seconds = None if self.failed else time.perf_counter() - started
        with self.file.open("a") as file:
            file.write(json.dumps([test_of(item), seconds]) + "\n")
        return result


def costs(file: Path) -> Counter[str]:
    """Return the seconds that each test took, but for those that failed, from what `Measuring` wrote."""
    took = list(map(json.loads, file.read_text().splitlines()))
    failed = {test for test, seconds in took if seconds is None}
    costs: Counter[str] = Counter()
    for test, seconds in took:
        if test not in failed:
            costs[test] += seconds
    return costs


@dataclass(kw_only=True, eq=False)
class Planting:
    """Tries defects instead of running all tests."""

    root: Path
    defects: Sequence[tuple[Defect, str]]
    """Each with the changed text of its file."""
    tests: dict[Defect, list[str]]
    """The tests to try, cheap ones first."""
    seconds: Counter[str]
    """What each test takes."""
    file: Path
    """Gets a line for each defect that was tried."""
    claims: Path
    """A folder in which a worker says what it has begun."""
    every: bool
    """Whether all tests run, also behind one that catches the defect."""
    most_seconds: float
    """How long the tests of one defect may take."""
    failed: bool = field(default=False, init=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that the test that runs has failed."""
        self.failed = self.failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each defect that no other worker has begun."""
        items = defaultdict(list)
        for item in session.items:
            items[test_of(item)].append(item)
        for number, (defect, text) in enumerate(self.defects):
            with contextlib.suppress(FileExistsError):
                (self.claims / str(number)).touch(exist_ok=False)
                tried = self._tried(defect, text, items)
                with self.file.open("a") as file:
                    file.write(tried.text)
        return True

    def _tried(self, defect: Defect, text: str, items: dict[str, list[pytest.Item]]) -> Tried:
        path = self.root / defect.file
        original, times = path.read_text(encoding="utf-8"), path.stat()
        reader, writer = os.pipe()
        path.write_text(text, encoding="utf-8")
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.setsid()
            try:
                _swap(path, original, text)
                self._run(defect, items, writer)
            except BaseException:  # noqa: BLE001 - a fault of ours: the parent says it
                os.write(writer, f"broken {traceback.format_exc()!r}\n".encode())
            finally:
                os._exit(0)
        os.close(writer)
        try:
            said, in_time = _read(reader, 3 * self.most_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            path.write_text(original, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        ran = [line.split(" ", 1) for line in said.splitlines()]
        if ran and ran[-1][0] == "broken":
            raise RuntimeError(ran[-1][1])
        caught = [test for word, test in ran if word == "failed"]
        if ran and ran[-1][0] == "began" and (in_time or not caught):  # it ended our process, or never ends
            caught.append(ran[-1][1])
        complete = bool(caught) or (bool(ran) and ran[-1][0] == "all")
        begun = sum(word == "began" for word, _ in ran)
        return Tried(defect=defect, caught_by=tuple(caught), tests=begun, complete=complete)

    def _run(self, defect: Defect, items: dict[str, list[pytest.Item]], writer: int) -> None:
        """Run the tests and say of each how it ended."""
        left = self.most_seconds
        for test in self.tests[defect]:
            left -= self.seconds[test]
            if left < 0:
                os.write(writer, b"some -\n")
                return
            self.failed = False
            os.write(writer, f"began {test}\n".encode())
            for item, following in zip(items[test], [*items[test][1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
            os.write(writer, f"{'failed' if self.failed else 'passed'} {test}\n".encode())
            if self.failed and not self.every:
                return
        os.write(writer, b"all -\n")


def _read(reader: int, seconds: float) -> tuple[str, bool]:
    """Return all that a process writes, and whether it ended in time."""
    said, ends = b"", time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            part = os.read(reader, 65536)
            if not part:
                return said.decode(), True
            said += part
    return said.decode(), False


def functions_changed(path: Path, original: str, text: str) -> dict[tuple[str, int], CodeType]:
    """Return the new code of each function that differs, by its name and old line; {} where more than functions do."""
    changed: dict[tuple[str, int], CodeType] = {}
    try:
        after = compile(text, path, "exec")
    except SyntaxError:
        return {}
    return changed if _differ(compile(original, path, "exec"), after, changed) else {}


def _differ(old: CodeType, new: CodeType, changed: dict[tuple[str, int], CodeType]) -> bool:
    """Collect what differs inside; return whether nothing but functions does."""
    if old.co_code != new.co_code or old.co_names != new.co_names:
        return False
    if len(old.co_consts) != len(new.co_consts):
        return False
    for before, after in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(before, CodeType) and isinstance(after, CodeType):
            if before.co_flags & CO_OPTIMIZED:
                if before != after:
                    changed[before.co_qualname, before.co_firstlineno] = after
            elif not _differ(before, after, changed):
                return False
        elif type(before) is not type(after) or before != after:
            return False
    return True


def _swap(path: Path, original: str, text: str) -> None:
    """Give all functions of a file that exist their new code."""
    changed = functions_changed(path, original, text)
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(path):
            code = changed.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None:
                function.__code__ = code
