"""The switch that rewrites golden files, which are derived: read `git diff` afterwards. The order of tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment.samples import covering_samples, samples_in
from grader.labs import LABS
from grader.labs.paged_kv import lab as paged_kv
from grader.pytest_plugin.items import SampleItem
from grader.runtime.native.compile import libc_names
from grader.runtime.native.runtime import NativeRuntime
from grader.system import sandbox
from grader.system.confine.launcher import machine
from grader.tests.support.browser import NO_CHROMIUM
from grader.tests.support.command import ROOT

_GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite grader/tests/golden/ instead of comparing with it; not where CI is set",
    )


_OBJECTS_UNTIL_COLLECTION = 100_000
"""Records and syntax trees stay for the whole run; to look at them again and again took a tenth of its time."""


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage rarely. A machine that checks our work must not correct it."""
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION, 50, 100)
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError(
            "--update-golden does not run where CI is set: rewrite the files at home, and read them"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with hostile batches, the longest, then samples. What they grade is kept for others (see graded.py)."""
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    if item.path.name == "test_hostile_suite.py":
        return 0
    if isinstance(item, SampleItem):
        return 1
    return 3 if item.get_closest_marker("thorough") else 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Say at the end, below all lists, what a machine without a browser did not look at."""
    yield
    skipped = terminalreporter.getreports("skipped")
    unseen = sum(NO_CHROMIUM in str(report.longrepr) for report in skipped)
    if unseen:
        terminalreporter.write_line(f"{unseen} browser tests were skipped: no Chromium", yellow=True)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does so for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as below nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def samples_of(request: pytest.FixtureRequest) -> Callable[[str], list[Path]]:
    """The samples of a lab that this run is about: those that cover it, or all."""

    def chosen(lab: str) -> list[Path]:
        choose = samples_in if request.config.getoption("--all-samples") else covering_samples
        return choose(ROOT / "submissions" / lab, LABS[lab].source_name)

    return chosen


@pytest.fixture
def whole_libc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unneeded calls reach the system, as a program can make them do without libc: by assembly of its own."""
    monkeypatch.setattr(libc_names, "doubtful", lambda _: [])


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is late is tried again: this machine is never found to have become slower."""
    paged_kv.lab().runtime.pace()  # measured and stored before that
    monkeypatch.setattr(NativeRuntime, "pace_now", lambda _: 1.0)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let this machine be one that lacks things that `Machine` names."""

    def without(*names: str) -> None:
        less = replace(
            machine(),
            user=machine().user and "user" not in names,
            landlock=0 if "landlock" in names else machine().landlock,
            seccomp=machine().seccomp and "seccomp" not in names,
            bubblewrap="" if "bubblewrap" in names else machine().bubblewrap,
        )
        monkeypatch.setattr(sandbox, "machine", lambda: less)

    return without


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file in golden/, or write the file when --update-golden is given."""

    def check(name: str, text: str) -> None:
        path = _GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.is_file():
            pytest.fail(f"{path} is missing: run pytest --update-golden, then read the file")

        assert path.read_text(encoding="utf-8") == text

    return check
