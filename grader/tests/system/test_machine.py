"""What a machine protects: each kind counts where it works, whatever the others do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import combinations

import pytest

from grader.core.errors import CannotStart
from grader.system.confine import launcher
from grader.system.confine.launcher import Machine

_KINDS = ("user", "landlock", "seccomp")


class Kernel:
    """A kernel that has some kinds, in the place of the launcher."""

    def __init__(self, *kinds: str, starts: bool = True) -> None:
        self.kinds = kinds
        self.starts = starts
        self.tried = 0

    def works(self, words: Sequence[str], around: Sequence[str] = ()) -> bool:
        """Whether a program with these words starts."""
        assert not around
        self.tried += 1
        return self.starts and {word.partition("=")[0] for word in words} <= {*self.kinds, "read"}


def machine_of(kernel: Kernel, patch: pytest.MonkeyPatch) -> Machine:
    """What the grader of root takes this machine for; it has no bubblewrap."""
    patch.setattr(launcher, "_works", kernel.works)
    patch.setattr(launcher, "_landlock", lambda: 5)
    patch.setattr(os, "geteuid", lambda: 0)
    patch.setattr(shutil, "which", lambda _: None)
    return launcher.machine.__wrapped__()


@pytest.mark.parametrize("kinds", [kinds for count in range(4) for kinds in combinations(_KINDS, count)], ids="+".join)
def test_each_kind_counts_alone(kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that the kernel lacks takes no other away."""
    here = machine_of(Kernel(*kinds), monkeypatch)

    assert (here.user, here.landlock, here.seccomp) == ("user" in kinds, 5 * ("landlock" in kinds), "seccomp" in kinds)


def test_a_machine_that_has_all_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts with all words has all of them."""
    kernel = Kernel(*_KINDS)
    machine_of(kernel, monkeypatch)

    assert kernel.tried == 1


def test_where_nothing_starts_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not a machine without protection."""
    with pytest.raises(CannotStart, match="cannot be started here"):
        machine_of(Kernel(*_KINDS, starts=False), monkeypatch)
