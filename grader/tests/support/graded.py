"""Labelled samples, each graded once for the current state of the code, by the first process that needs it.

Records are cached as JSON in a folder for temporary files, named by a hash over everything that a grading depends on.
pytest-xdist runs tests in several processes; both the items of the samples and test_proportion.py need every record.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from grader import pipeline
from grader.assignment.lab import Settings
from grader.assignment.samples import LABEL, PATCH, is_patched, program_of
from grader.classroom.workers import grading_plan
from grader.core.picture import Drawing
from grader.core.record import Record, from_json, to_json, write
from grader.core.verdict import Visibility
from grader.labs import LABS
from grader.pytest_plugin import items
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import ROOT

_DAY = 86_400
_grade = items.graded


@cache
def graded(lab_name: str, path: Path, *, share: int = items.SHARE) -> Record:
    """Return the record of the sample in this folder; `share` as in the items of the samples."""
    return from_json(_kept(lab_name, path, wait=True, share=share).read_bytes())


def all_graded(lab_name: str, paths: Iterable[Path]) -> list[Record]:
    """Return the records of many samples, in their order; samples that another process is grading are left for last.

    Grading begins with the last sample: the items of the samples begin with the first, and two processes that walk the
    same way wait for each other at each sample.
    """
    wanted = list(paths)
    for path in reversed(wanted):
        with contextlib.suppress(BlockingIOError):
            _kept(lab_name, path, wait=False)
    return [graded(lab_name, path) for path in wanted]


def keep(lab_name: str, path: Path, record: Record) -> None:
    """Cache a record that was made elsewhere, so that other processes do not grade this sample."""
    _kept(lab_name, path, wait=True, made=lambda: record)


def _kept(
    lab_name: str, path: Path, *, wait: bool, share: int = items.SHARE, made: Callable[[], Record] | None = None
) -> Path:
    """Return the file of a record, and make it if it does not exist.

    Raises `BlockingIOError` when another process is making it and `wait` is false.
    """
    key = hashlib.sha256(f"{grading_plan(Settings(lab=lab_name)).fingerprint} {share}".encode())
    for file in sorted(path.iterdir()):
        if file.name not in (LABEL, PATCH):
            key.update(f"{file}\0".encode() + file.read_bytes())
    if is_patched(path):
        key.update(program_of(path, LABS[lab_name].source_name))
    kept = _folder() / f"{key.hexdigest()[:32]}.json"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if not kept.exists():
            write(kept, to_json(made() if made is not None else _grade(lab_name, path, share=share)))
    return kept


@cache
def drawn(name: str, drawing: Drawing = Drawing.ALL) -> Record:
    """Return the record of the sample of this name, with pictures of its failing cases, without Valgrind."""
    chosen = grading_plan(Settings(lab="paged_kv"))
    (folder,) = (ROOT / "submissions" / chosen.lab.name).glob(f"*/{name}")
    return pipeline.grade(folder, chosen.lab, chosen.cases, GradingOptions(memory_checker=False), draw=drawing)


@cache
def drawn_public(lab_name: str, sample: str) -> Record:
    """Return the record of a sample (`VERDICT/NAME`) by the written public cases of its lab, with pictures."""
    plan = grading_plan(Settings(lab=lab_name))
    cases = [case for case in plan.cases if case.generated is None and case.visibility is Visibility.PUBLIC]
    folder = ROOT / "submissions" / lab_name / sample
    return pipeline.grade(folder, plan.lab, cases, GradingOptions(), draw=Drawing.ALL)


items.graded = graded  # the items of the samples and the other tests share these records


@cache
def _folder() -> Path:
    """Return this user's folder for cached records; it is emptied when a record is older than a day."""
    folder = Path(tempfile.gettempdir()) / f"graded-samples-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid() or folder.is_symlink():
        folder = Path(tempfile.mkdtemp(prefix="graded-samples-"))
    if any(time.time() - file.stat().st_mtime > _DAY for file in folder.glob("*.json")):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder
