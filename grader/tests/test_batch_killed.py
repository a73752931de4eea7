"""A batch that is killed or interrupted loses nothing that was finished, and leaves nothing behind.

`python -m grader.tests.whole_class` does the same with 300 submissions.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.tests.classes import finished, killed_and_resumed, made_class, records, start
from grader.tests.test_interrupted import wait_for_silence

_OPTIONS = ("--case", "append/copy_*", "--without-valgrind", "--jobs", "2")
_COUNT = 14


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A small class, in a place into which another user may look."""
    made = Path(tempfile.mkdtemp(prefix="killed-"))
    made.chmod(0o755)
    yield made_class(made / "class", _COUNT)
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Path:
    """The store of a batch that ran to its end."""
    store = folder.parent / "undisturbed.sqlite"
    process = start(folder, store, *_OPTIONS)
    _, said = process.communicate(timeout=120)

    assert process.returncode == 1, said.decode()
    return store


def test_a_killed_batch_goes_on_to_the_same_store(folder: Path, undisturbed: Path) -> None:
    """SIGKILL at random moments: record by record what an undisturbed one has, and never less than before."""
    store = folder.parent / "killed.sqlite"
    seen = killed_and_resumed(folder, store, 4, *_OPTIONS)
    expected, made = records(undisturbed), records(store)

    assert seen == sorted(seen)
    assert any(0 < count < _COUNT for count in seen)
    assert made.keys() == expected.keys()
    assert [name for name in made if not made[name].same_result(expected[name])] == []
    assert wait_for_silence(folder.parent, 10) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_batch_keeps_what_is_finished(folder: Path, number: signal.Signals) -> None:
    """It ends with 130 and says how to go on; nothing of it is left, but for the store."""
    store = folder.parent / f"interrupted_{number}.sqlite"
    process = start(folder, store, *_OPTIONS)
    deadline = time.monotonic() + 60
    while not finished(store) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 130, said.decode()
    assert "the same command goes on" in said.decode()
    assert "Traceback" not in said.decode()
    assert 1 <= finished(store) < _COUNT
    assert wait_for_silence(folder.parent, 5) == []
    assert list((folder.parent / "tmp").glob("grade-*")) == []
