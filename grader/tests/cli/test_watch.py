"""A submission that is watched is graded anew when it is saved, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grader.assignment.samples import program_of
from grader.cli import run
from grader.core.errors import ExitCode, ToolMissing
from grader.labs import open_lab
from grader.tests.support.command import ROOT, command, environment, grade

_PATIENCE = 300.0
"""Seconds after which a test fails; only a machine with much other work comes near."""


def appears(out: Path, sentence: str, *, times: int = 1) -> str:
    """Wait until the output has the sentence so many times, and return the output."""
    started = time.monotonic()
    while out.read_text(encoding="utf-8").count(sentence) < times:
        assert time.monotonic() - started < _PATIENCE, out.read_text(encoding="utf-8")
        time.sleep(0.05)
    return out.read_text(encoding="utf-8")


def save(folder: Path, lab: str, sample: str) -> None:
    """As an editor saves: into another file, which takes the place of the old one."""
    source_name = open_lab(lab).source_name
    (folder / "new").write_bytes(program_of(ROOT / "submissions" / lab / sample, source_name))
    (folder / "new").replace(folder / source_name)


@contextmanager
def watching(work: Path, lab: str, out: Path) -> Iterator[None]:
    """Watch a folder with the output in a file; at the end comes Ctrl-C, which is no error."""
    with out.open("w", encoding="utf-8") as stdout:
        process = subprocess.Popen(
            command("watch", str(work), "--lab", lab),
            cwd=ROOT,
            env=environment(),
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=_PATIENCE)
    assert process.returncode == ExitCode.ACCEPTED
    assert error == b"no longer watching\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder for a submission."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("lab", "samples", "trace"),
    [
        ("paged_kv", ("wrong_answer/no_copy_on_write", "accepted/terse_with_macros"), "> append_kv 1 1 -> 0"),
        ("block_pool", ("wrong_answer/double_free_noticed_late", "accepted/plain_text"), "> free_blocks ["),
    ],
)
def test_each_save_is_graded(work: Path, lab: str, samples: tuple[str, str], trace: str) -> None:
    """The first cause with its smallest trace, then that all is right, as `grade run` says it; then a cause again."""
    wrong, right = samples
    out = work.with_name("out")
    save(work, lab, wrong)
    with watching(work, lab, out):
        assert "The smallest trace" in appears(out, trace)
        save(work, lab, right)
        shown = appears(out, grade("run", work, "--lab", lab).out)
        assert shown.index(trace) < shown.index("accepted, 100 of 100 points")
        save(work, lab, wrong)
        appears(out, trace, times=2)


def test_old_is_what_has_another_content(tmp_path: Path) -> None:
    """Not what was only touched, or is not there for a moment."""
    file = tmp_path / "block_pool.py"
    file.write_text("x = 1\n", encoding="utf-8")
    saved = run.Saved.at(tmp_path, open_lab("block_pool"))
    old = [saved.is_old()]
    os.utime(file, (1, 1))
    old.append(saved.is_old())
    file.rename(tmp_path / "away")
    old.append(saved.is_old())
    file.write_text("x = 2\n", encoding="utf-8")
    old += [saved.is_old(), saved.is_old()]

    assert old == [False, False, False, True, True]


def test_without_watchfiles_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(run, "import_module", missing)
    with pytest.raises(ToolMissing, match="scripts/setup --watch"):
        run.changes_of()
