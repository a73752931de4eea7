"""The interpreter that runs submissions works in the sandbox, or nothing is graded."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from grader.core.errors import CannotStart, OptionalStages
from grader.labs import open_lab
from grader.runtime.protocol import DEFAULTS
from grader.runtime.python import process
from grader.system.sandbox import workspace
from grader.tests.support.confined import as_root

_REAL = process.OWN
_NAME = "python{}.{}".format(*sys.version_info)
_LAB = "block_pool"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where other interpreters are looked for, instead of the system's; the cache of a found one is off."""
    monkeypatch.setattr(process, "_PLACES", (str(tmp_path / "none"), str(tmp_path)))
    monkeypatch.setattr(process, "interpreter", process.interpreter.__wrapped__)
    return tmp_path


@pytest.fixture
def closed(places: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that other users may not enter, with the grader's own interpreter; its parents are like that too."""
    place = places / "closed"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(process, "OWN", shutil.copy(_REAL, f"{place}/python"))
    return place


@as_root
def test_another_python_of_the_same_version_is_taken(places: Path, closed: Path) -> None:
    """Where submissions run as another user, who may not enter the folder. `grade doctor` says which and why."""
    (places / _NAME).symlink_to(_REAL)
    (tool,) = open_lab(_LAB).runtime.tools(DEFAULTS)

    assert tool.name == process.interpreter() == _REAL
    assert tool.purpose == f"{_REAL} runs submissions, because {closed}/python does not run in the sandbox"


@as_root
def test_a_closed_folder_is_named_where_no_python_fits(places: Path, closed: Path) -> None:
    """With what to do. `grade doctor` still lists the grader's own, and tries a grading, which says it."""
    with pytest.raises(CannotStart) as caught:
        process.interpreter()
    (tool,) = open_lab(_LAB).runtime.tools(DEFAULTS)

    assert f"{tool.name}': Permission denied). Put a {_NAME} that every user may run into" in str(caught.value)
    assert f" {closed}" in str(caught.value)
    assert "its folders: chmod o+x /" in str(caught.value)
    assert tool.name == f"{closed}/python"


def test_an_interpreter_that_does_not_run_the_harness_fails_no_submission(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts and ends with an error, as where it may not read its own library, or is of another version."""
    monkeypatch.setattr(process, "MAGIC_NUMBER", b"none")
    monkeypatch.setattr(process, "_harness", process._harness.__wrapped__)
    with workspace() as work, pytest.raises(CannotStart, match="RuntimeError: Bad magic number"):
        open_lab(_LAB).runtime.build(work, b"pass\n", beside={}, optional=OptionalStages())
