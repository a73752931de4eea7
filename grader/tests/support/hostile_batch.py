"""The hostile suite in batches, among decoys: objects that samples must not read, touch, signal or leave.

The decoys are checked after each batch. They have these names, which samples rely on where no protection hides them:

    HOSTILE_CANARY             a variable of the grader's environment
    $HOME/hostile_canary       in the grader's home folder, readable by its owner only
    ../hostile_canary          beside the private folder, readable by every user
    ../grade-neighbour         the private folder of another submission, with a source
    ../hostile_canary.socket   a listening socket; there are more on the ports and at the name of listeners.py
    hostile_mark*              the name of whatever a sample tries to leave outside its private folder
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from grader.assignment.samples import label_of
from grader.core.record import Record, from_json
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.pytest_plugin.items import may_get
from grader.tests.support.command import ROOT, SAMPLES, command, environment
from grader.tests.support.listeners import Ears, left_behind

SHARDS = (("forging",), ("reading", "damage"), ("exhaustion",), ("corrupting",))
"""The kinds of attack that are graded in one batch."""

ATTACKS = tuple(attack for shard in SHARDS for attack in shard)
"""The values of the key `attack` of a label."""

_BATCHES = Path(tempfile.gettempdir()) / f"hostile-batches-{os.geteuid()}.lock"
"""Batches share ports, names and folders, so a user has never more than one of them at a time."""

LAST = SAMPLES / "accepted" / "yoda_crlf"
"""A sample that is graded after all hostile ones."""

_SHARED = [Path(name) for name in ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/etc")]
"""Folders that other processes use too; only files with the samples' mark are looked for there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A hostile sample and its label."""

    folder: Path
    label: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the sample's folder."""
        return self.folder.name

    @property
    def attack(self) -> str:
        """What it does: one of `ATTACKS`."""
        return str(self.label["attack"])

    @property
    def verdict(self) -> Verdict:
        """The verdict that the sample must get: the name of the parent folder."""
        return Verdict(self.folder.parent.name)

    @property
    def honest(self) -> dict[Verdict, int]:
        """The verdicts that it may get on this machine, with the points that the honest part of its code earns then."""
        return {verdict: most for verdict, (_, most) in may_get(lab(), self.label, self.verdict).items()}

    @property
    def most(self) -> int:
        """The most points that the honest part of its code can earn on this machine."""
        return max(self.honest.values())


def suite() -> list[Hostile]:
    """Return all hostile samples, sorted by name."""
    return [_hostile(folder) for folder in sorted(SAMPLES.glob("*/hostile_*"), key=lambda folder: folder.name)]


def _hostile(folder: Path) -> Hostile:
    return Hostile(folder=folder, label=label_of(folder))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The output of a batch, and the observations of the decoys."""

    out: str
    err: str
    canaries: dict[str, str]
    """The texts that must not appear in any output, by the place where they are stored."""
    appeared: tuple[str, ...]
    """Files that are new, changed or deleted."""
    heard: tuple[str, ...]
    """The listening decoys that were contacted."""
    left: tuple[str, ...]
    """Objects that belong to no process and were not removed."""
    notes: dict[str, Any]
    """The notes of grader.tests.support.decoy; empty when it was killed."""

    @cached_property
    def records(self) -> list[Record]:
        """The record of each submission, in their order."""
        return [from_json(json.dumps(value)) for value in _objects(self.out)]


def _objects(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    place = 0
    while text[place:].strip():
        value, place = decoder.raw_decode(text, text.index("{", place))
        yield value


def grade_all(folders: Sequence[Path]) -> Batch:
    """Grade these submissions and then an accepted one in one process, among decoys."""
    with _BATCHES.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        around = Path(tempfile.mkdtemp(prefix="hostile-"))
        around.chmod(0o755)  # open to unprivileged users, like a real folder for temporary files
        try:
            return _among_decoys(around, folders)
        finally:
            shutil.rmtree(around)


def _among_decoys(around: Path, folders: Sequence[Path]) -> Batch:
    home, shared, here = (around / name for name in ("home", "tmp", "here"))
    for folder, mode in {home: 0o700, shared: 0o1777, here: 0o755}.items():
        folder.mkdir()
        folder.chmod(mode)
    canaries = {name: f"canary{secrets.token_hex(8)}" for name in ("variable", "home", "shared", "neighbour")}
    (home / "hostile_canary").write_text(f"{canaries['home']}\n", encoding="utf-8")
    (home / "hostile_canary").chmod(0o600)
    (shared / "hostile_canary").write_text(f"{canaries['shared']}\n", encoding="utf-8")
    neighbour = shared / "grade-neighbour"
    neighbour.mkdir(mode=0o700)
    (neighbour / "llm_memory.c").write_text(f"// {canaries['neighbour']}\n", encoding="utf-8")
    watched = (home, shared, here, ROOT / "cases", ROOT / "submissions")
    variables = environment(
        HOME=str(home),
        TMPDIR=str(shared),
        HOSTILE_CANARY=canaries["variable"],
        # the grader's compiled files are cached in the usual place
        XDG_CACHE_HOME=os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
    )
    with (around / "out").open("wb") as out, (around / "err").open("wb") as err, Ears(shared) as ears:
        before = _seen(watched)
        subprocess.run(
            [
                *(sys.executable, "-m", "grader.tests.support.decoy", str(around / "notes")),
                *command("run", "--format", "json", *folders, LAST),
            ],
            cwd=here,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            check=False,
        )
        after = _seen(watched)
        heard = tuple(ears.heard())
    notes = around / "notes"
    return Batch(
        out=(around / "out").read_text(encoding="utf-8", errors="replace"),
        err=(around / "err").read_text(encoding="utf-8", errors="replace"),
        canaries=canaries,
        appeared=tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))),
        heard=heard,
        left=tuple(left_behind()),
        notes=json.loads(notes.read_text(encoding="utf-8")) if notes.is_file() else {},
    )


def _seen(watched: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the state of everything below these folders, and of files with the samples' mark in shared folders."""
    paths = [path for folder in watched for path in (folder, *folder.rglob("*"))]
    paths += [path for folder in _SHARED for path in folder.glob("hostile_mark*")]
    found: dict[str, tuple[int, ...]] = {}
    for path in paths:
        status = path.lstat()
        size = status.st_size if path.is_file() else 0
        # a folder's time changes with each private folder in it; its contents have entries of their own
        changed = status.st_mtime_ns if path.is_file() else 0
        found[str(path)] = (status.st_mode, status.st_uid, size, changed)
    return found
