"""The users that student code gets: one for each process of ours, and nobody else can take them away."""

from __future__ import annotations

import multiprocessing
import os
from functools import cache
from pathlib import Path

import pytest

from grader.core.errors import CannotStart, OutOfRoom
from grader.system.confine import launcher as slot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one user only")


@pytest.fixture
def parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where the locks may be, instead of the system's places; nobody has one yet."""
    places = tmp_path / "run", tmp_path / "lib"
    for place in places:
        place.mkdir()
    monkeypatch.setattr(slot, "_PARENTS", tuple(map(str, places)))
    monkeypatch.setattr(slot, "_user", cache(slot._user.__wrapped__))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "none"))
    return places


def _in_another_process() -> int:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(slot.user_of_this_process)


def test_each_process_has_a_user_of_its_own(parents: tuple[Path, Path]) -> None:
    """A forked one too; the lock lies where only we may look."""
    own = slot.user_of_this_process()

    assert own == slot.user_of_this_process() in slot.USERS
    assert _in_another_process() in set(slot.USERS) - {own}
    assert (parents[0] / slot._NAME).stat().st_mode & 0o777 == 0o700
    assert list(parents[1].iterdir()) == []


def test_what_somebody_else_put_in_the_place_is_passed_over(parents: tuple[Path, Path]) -> None:
    """A folder of another user, one that others may write to, a link."""
    first, second = parents
    (first / slot._NAME).mkdir()
    os.chown(first / slot._NAME, 65_534, 65_534)

    assert slot.user_of_this_process() in slot.USERS
    assert (second / slot._NAME / str(slot.user_of_this_process())).is_file()

    (second / slot._NAME).chmod(0o777)
    with pytest.raises(CannotStart, match="no place for locks"):
        slot._user(0)
    (first / slot._NAME).rmdir()
    (first / slot._NAME).symlink_to(second)
    with pytest.raises(CannotStart, match="no place for locks"):
        slot._user(0)


def test_there_are_so_many_and_no_more(parents: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the grader says that it is too busy."""
    monkeypatch.setattr(slot, "_COUNT", 1)
    slot.user_of_this_process()

    with pytest.raises(OutOfRoom, match="1 gradings"):
        slot._user(0)
