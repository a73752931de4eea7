"""What tests call in their own process does what a started `grade` does, and leaves that process as it was."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.system import resources as installed
from grader.tests.support.command import FEW, SAMPLES, grade, grade_process, tools

_RIGHT = SAMPLES / "accepted" / "yoda_crlf"
_WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
_QUICK = ("--without-memory-checker", *FEW)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ((), {}),
        (("completion", "bash"), {}),
        (("run", "nowhere"), {}),
        (("cases", "--case", "append/*"), {"COLUMNS": "60", "PYTHONIOENCODING": "ascii"}),
        (("repro", _WRONG, "append/copy_takes_all_64_bytes", "--without-memory-checker"), {}),
        (("run", _RIGHT, *_QUICK), {"PATH": "/nowhere"}),
        (("pack", "starter", "made"), {}),
    ],
    ids=["nothing", "completion", "complaint", "encoding", "repro", "no tool", "pack"],
)
def test_it_says_and_writes_what_a_process_does(
    words: tuple[str | Path, ...], variables: dict[str, str], tmp_path: Path
) -> None:
    """Exit code, both streams, and files in the folder where it is called."""
    results = {}
    for call in (grade_process, grade):
        folder = tmp_path / call.__name__
        folder.mkdir()
        ended = call(*words, cwd=folder, variables=variables)
        files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        results[call.__name__] = (ended, files)

    assert results["grade"] == results["grade_process"]


def _state() -> dict[str, object]:
    return {
        "variables": dict(os.environ),
        "folder": Path.cwd(),
        "descriptors": {path: path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()},
        "streams": (sys.argv, sys.stdin, sys.stdout, sys.stderr),
        "handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "temporary": tempfile.tempdir,
        "gcc": installed.version("gcc"),
        "garbage": (gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()),
    }


@pytest.fixture
def own_handler() -> Iterator[None]:
    """A handler that no command sets, after a command has loaded what is loaded once."""
    grade("run", _RIGHT, *_QUICK)
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("own_handler")
def test_it_leaves_nothing_changed(tmp_path: Path) -> None:
    """Whether it ends well or not, and in other surroundings: the next test finds its own."""
    before = _state()
    looked = grade("doctor", variables={"PATH": tools(tmp_path / "bin", "valgrind")})
    refused = grade("run", tmp_path, "--lab", "paged_kv", variables={"TMPDIR": str(tmp_path)}, cwd=tmp_path)

    assert (looked.code, refused.code) == (3, 1)
    assert re.search(r"gcc\W+missing", looked.out)
    assert _state() == before
