"""A submission that is watched is graded anew when it is saved, until Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from grader.cli import watch
from grader.core.errors import ExitCode, ToolMissing
from grader.tests.support.command import ROOT, command, environment

_PATIENCE = 60.0


def appears(out: Path, sentence: str, *, times: int = 1) -> str:
    """Wait until the output has the sentence so many times, and return the output."""
    started = time.monotonic()
    while out.read_text(encoding="utf-8").count(sentence) < times:
        assert time.monotonic() - started < _PATIENCE, out.read_text(encoding="utf-8")
        time.sleep(0.05)
    return out.read_text(encoding="utf-8")


def save(folder: Path, lab: str, sample: str) -> None:
    """As an editor saves: into another file, which takes the place of the old one."""
    (source,) = (ROOT / "submissions" / lab / sample).glob("*.[cp]*")
    shutil.copy(source, folder / "new")
    (folder / "new").replace(folder / source.name)


@pytest.mark.parametrize(
    ("lab", "samples", "trace"),
    [
        ("paged_kv", ("wrong_answer/no_copy_on_write", "accepted/terse_with_macros"), "> append_kv 1 1 -> 0"),
        ("block_pool", ("wrong_answer/double_free_noticed_late", "accepted/plain_text"), "> free_blocks ["),
    ],
)
def test_each_save_is_graded(tmp_path: Path, lab: str, samples: tuple[str, str], trace: str) -> None:
    """The first cause with its smallest trace, then that all is right; Ctrl-C is no error."""
    wrong, right = samples
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    save(work, lab, wrong)
    with out.open("w", encoding="utf-8") as stdout:
        process = subprocess.Popen(
            command("watch", str(work), "--lab", lab),
            cwd=ROOT,
            env=environment(),
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
    try:
        assert "The smallest trace" in appears(out, trace)
        save(work, lab, right)
        shown = appears(out, "have full marks")
        assert shown.index(trace) < shown.index("have full marks")
        save(work, lab, wrong)
        appears(out, trace, times=2)
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=_PATIENCE)

    assert process.returncode == ExitCode.ACCEPTED
    assert error == b"no longer watching\n"


def test_without_watchfiles_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(watch, "import_module", missing)
    with pytest.raises(ToolMissing, match="scripts/setup --watch"):
        watch.changes_of()
