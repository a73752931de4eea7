"""A grading that is killed leaves no file or a valid record, and nothing that confuses the next one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from jsonschema_rs import Draft202012Validator

from grader.core import record
from grader.core.record import Record, from_json
from grader.core.verdict import Verdict
from grader.system import sandbox
from grader.tests.support.command import ROOT
from grader.tests.support.programs import POSIX, SAMPLES, around, right

_KILLS = 15


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for reports and temporary files, in which another user may work too."""
    made = Path(tempfile.mkdtemp(prefix="interrupted-"))
    made.chmod(0o755)
    (made / "tmp").mkdir(mode=0o755)
    yield made
    shutil.rmtree(made)


@cache
def validator() -> Draft202012Validator:
    """What the published schema demands."""
    return Draft202012Validator(record.schema())


def start(folder: Path, submission: Path) -> subprocess.Popen[bytes]:
    """`grade run --format json --output F` in a process of its own."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "grader",
            "run",
            str(submission),
            "--case",
            "append/*",
            "--format",
            "json",
            "--output",
            str(folder / "record.json"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def found(folder: Path) -> Record | None:
    """The record that is there, which must be whole and valid."""
    path = folder / "record.json"
    if not path.exists():
        return None
    text = path.read_bytes()
    validator().validate(json.loads(text))
    return from_json(text)


def survivors(folder: Path) -> list[int]:
    """Processes that were started below this folder and still live."""
    left = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                left.append(int(entry.name))
    return left


def wait_for_silence(folder: Path, seconds: float) -> list[int]:
    """Give what is left a moment to end by itself; kill and return what does not."""
    deadline = time.monotonic() + seconds
    while (left := survivors(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return left


def how_long(folder: Path, submission: Path) -> float:
    """The time of one grading on this machine now."""
    started = time.monotonic()
    process = start(folder, submission)
    process.communicate(timeout=60)
    (folder / "record.json").unlink()
    return time.monotonic() - started


def test_a_kill_at_any_moment_leaves_no_file_or_a_valid_record(folder: Path) -> None:
    """SIGKILL, fifteen times: what is there can be read, and the next grading is as good as any."""
    submission = SAMPLES / "wrong_answer" / "last_fit"
    length = how_long(folder, submission)
    random_moments = random.Random(7)
    seen: list[bool | None] = []
    for number in range(_KILLS):
        process = start(folder, submission)
        time.sleep(length * (number + random_moments.random()) / _KILLS)
        process.kill()
        process.communicate(timeout=20)
        made = found(folder)
        seen.append(None if made is None else made.complete)
        (folder / "record.json").unlink(missing_ok=True)

    assert None in seen
    assert wait_for_silence(folder, 10) == []
    others = [path.name for path in folder.iterdir() if path.name != "tmp"]
    assert len(others) <= 3
    assert not any(name.endswith(".json") for name in others)

    start(folder, submission).communicate(timeout=60)
    made = found(folder)
    assert made is not None
    assert made.complete


def test_a_kill_leaves_a_record_without_points(folder: Path) -> None:
    """From the beginning on, in the place of one of an earlier grading."""
    start(folder, SAMPLES / "accepted" / "yoda_crlf").communicate(timeout=60)
    before = found(folder)
    assert before is not None
    assert before.score == before.max_score
    process = start(folder, SAMPLES / "accepted" / "yoda_crlf")
    deadline = time.monotonic() + 30
    while found(folder) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=20)
    made = found(folder)

    assert made is not None
    assert (made.score, made.verdict, made.complete) == (None, Verdict.JUDGE_ERROR, False)
    assert wait_for_silence(folder, 10) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_at_any_moment_cleans_up(folder: Path, number: signal.Signals) -> None:
    """Ctrl-C and kill: the same, but nothing at all is left beside a record."""
    submission = SAMPLES / "accepted" / "yoda_crlf"
    length = how_long(folder, submission)
    codes = set()
    for part in (0.4, 0.6, 0.7, 0.8, 0.95):
        process = start(folder, submission)
        time.sleep(length * part)
        process.send_signal(number)
        process.communicate(timeout=30)
        codes.add(process.returncode)
        found(folder)
        (folder / "record.json").unlink(missing_ok=True)

    # Python ends itself by SIGINT where an interrupt met an import that makes code; a shell calls that 130 too
    assert codes <= {130, 0, 1, -number, -signal.SIGINT}
    assert 130 in codes
    assert wait_for_silence(folder, 2) == []
    assert [path.name for path in folder.iterdir()] == ["tmp"]
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.timeout(120)
def test_a_hanging_program_does_not_outlive_its_killed_grader(folder: Path) -> None:
    """SIGKILL while a call loops for ever: the program ends soon, though nobody is left to end it."""
    (folder / "hang").mkdir(mode=0o755)
    source = around("append_kv", "    if (engine != NULL) for (;;) pause();", top=POSIX)
    (folder / "hang" / "llm_memory.c").write_text(source, encoding="utf-8")
    process = start(folder, folder / "hang")
    deadline = time.monotonic() + 20
    while len(survivors(folder / "tmp" / "grade-")) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=20)

    assert right()
    assert wait_for_silence(folder, 10) == []


@pytest.mark.parametrize(
    "where",
    [
        *("grader.system.sandbox.user_of_this_process", "pathlib.Path.mkdir", "os.chown", "pathlib.Path.chmod"),
        *("grader.system.private_folder.remove", "grader.system.private_folder._folders", "shutil.rmtree"),
    ],
)
def test_an_interrupt_while_the_workspace_is_made_or_removed_leaves_none(
    monkeypatch: pytest.MonkeyPatch, folder: Path, where: str
) -> None:
    """The folder is there a moment before the user of it is known, and a moment after it is not needed any more."""

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()  # once
        raise KeyboardInterrupt

    sandbox.protection()  # asks once what the machine allows
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    monkeypatch.setattr(where, interrupted)
    with contextlib.suppress(KeyboardInterrupt), sandbox.workspace():
        pass
    monkeypatch.undo()

    assert list((folder / "tmp").iterdir()) == []
