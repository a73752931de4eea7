"""A grading that is killed leaves no file or a valid record, and nothing that confuses the next one.

`python -m grader.tests.trials.interrupted_gradings` ends many more, at moments of their whole time.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.core.verdict import Verdict
from grader.system import sandbox
from grader.tests.support.command import SAMPLES
from grader.tests.support.interrupted import (
    found,
    how_long,
    interrupted,
    killed,
    place,
    start,
    survivors,
    wait_for_silence,
)
from grader.tests.support.programs import POSIX, around, right

_SUBMISSION = SAMPLES / "wrong_answer" / "last_fit"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for reports and temporary files, in which another user may work too."""
    with place() as made:
        yield made


@pytest.fixture(scope="module")
def length() -> float:
    """The seconds that one grading takes on this machine now."""
    with place() as folder:
        return how_long(folder, _SUBMISSION)


def test_a_kill_at_any_moment_leaves_no_file_or_a_valid_record(folder: Path, length: float) -> None:
    """SIGKILL, three times: what is there can be read, and the next grading is as good as any."""
    seen = killed(folder, _SUBMISSION, [length * part for part in (0.05, 0.5, 0.8)])

    assert None in seen
    assert wait_for_silence(folder, 10) == []
    others = [path.name for path in folder.iterdir() if path.name != "tmp"]
    assert len(others) <= 3
    assert not any(name.endswith(".json") for name in others)

    start(folder, _SUBMISSION).communicate(timeout=60)
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


@pytest.mark.parametrize(("number", "part"), [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.1), (signal.SIGHUP, 0.2)])
def test_an_interrupt_of_a_grading_cleans_up(folder: Path, length: float, number: signal.Signals, part: float) -> None:
    """Ctrl-C and kill: the same, but nothing at all is left beside a record."""
    code = interrupted(folder, _SUBMISSION, number, length * part, working=True)

    # Python ends itself by SIGINT where an interrupt met an import that makes code; a shell calls that 130 too
    assert code in (130, -signal.SIGINT)
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
        *("grader.system.folders.remove", "grader.system.folders._folders", "shutil.rmtree"),
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
