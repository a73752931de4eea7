"""Labelled samples, by which the grader is tested: a program and its label, in submissions/LAB/VERDICT/NAME/.

The label (expect.toml) holds what a person claims: verdict, rules, a summary. What follows from the rubric is the range
of points that a sample may keep. All ranges of a lab are in one file (keeps.toml), so that changed points are one diff.

A program that differs from another sample in a few lines is that sample and a patch: `base = "accepted/NAME"` in its
label and mistake.patch beside it, so that a reader opens the mistake and not four hundred lines. git applies the patch;
it is there wherever a clone is, and knows all that a patch may hold.

Some samples of a lab together show all that all of them show; they are named in covering.toml. What a right program is
worth without one of its calls is in knock_outs.toml.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grader.core.errors import UsageError
from grader.core.verdict import Verdict
from grader.system import process
from grader.system.process import Patience

LABEL, KEEPS, COVERING, PATCH = "expect.toml", "keeps.toml", "covering.toml", "mistake.patch"
KNOCK_OUTS = "knock_outs.toml"
_DEPTH = 3
_BASE = re.compile(r"\w+/\w+", re.ASCII)
_SAMPLES = Path(__file__).parents[2] / "submissions"


def label_of(sample: Path) -> dict[str, Any]:
    """Return the label of a sample with the points that it may keep; {} for an accepted one without a label.

    Raises `UsageError` for a label that cannot be read.
    """
    if not (sample / LABEL).exists():
        return {}
    label = _toml(sample / LABEL)
    keeps = _keeps(sample.parents[1] / KEEPS).get(f"{sample.parent.name}/{sample.name}")
    return label if keeps is None else label | {"keeps": keeps}


def is_patched(sample: Path) -> bool:
    """Whether a folder is a sample of this clone that is kept as a patch.

    Only submissions/LAB/VERDICT/NAME can be one, with a lab that has cases and a verdict: a student's folder could ask
    for a right program as its base.
    """
    place = sample.resolve()
    return (
        len(place.parts) > _DEPTH
        and place.parents[2] == _SAMPLES.resolve()
        and (sample / PATCH).is_file()
        and place.parent.name in {*Verdict}
        and (_SAMPLES.parent / "cases" / place.parents[1].name / "rubric.toml").is_file()
    )


def lab_of_sample(sample: Path) -> str:
    """Return the name of the lab of a sample."""
    return sample.resolve().parts[-3]


def program_of(sample: Path, source_name: str) -> bytes:
    """Return the program of a sample. Raises `UsageError` for a patch that does not apply."""
    if not is_patched(sample):
        return (sample / source_name).read_bytes()
    base = _toml(sample / LABEL).get("base")
    whole = sample.parents[1] / base / source_name if isinstance(base, str) and _BASE.fullmatch(base) else None
    if whole is None or not whole.is_file():
        raise UsageError(f'{sample / LABEL}: {PATCH} needs a line such as base = "accepted/NAME", a whole sample')
    return _patched(whole.read_bytes(), sample / PATCH, source_name)


def samples_in(folder: Path, source_name: str) -> list[Path]:
    """Return the folders of all samples of a lab, sorted; `folder` is that of the lab."""
    return sorted({path.parent for name in (source_name, PATCH) for path in folder.glob(f"*/*/{name}")})


def covering_samples(folder: Path, source_name: str) -> list[Path]:
    """Return the folders of the samples that cover a lab, in their order: all where nothing is written down."""
    if not (folder / COVERING).exists():
        return samples_in(folder, source_name)
    return [folder / name for name in _toml(folder / COVERING)["samples"]]


@dataclass(frozen=True, slots=True)
class KnockOuts:
    """What a right program is worth in which one call does nothing."""

    right: Path
    """The sample of a right program."""
    empty: Path
    """The sample of one that returns plausible, empty values everywhere."""
    teacher: Mapping[str, int]
    """By call the points of a fair teacher, written down before anything was graded."""


def knock_outs_of(folder: Path) -> KnockOuts | None:
    """Return what knock_outs.toml of a lab says; None without one. Raises `UsageError` for one that cannot be read."""
    path = folder / KNOCK_OUTS
    if not path.exists():
        return None
    match _toml(path):
        case {"right": str(right), "empty": str(empty), "teacher": dict(teacher)}:
            return KnockOuts(folder / right, folder / empty, teacher)
    raise UsageError(f'{path}: write right and empty, each "VERDICT/NAME", and a table [teacher] of points by call')


def _patched(base: bytes, patch: Path, source_name: str) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, source_name)
        file.write_bytes(base)
        done = process.run(
            ["git", "apply", "--whitespace=nowarn", str(patch.resolve())],
            cwd=file.parent,
            limits=Patience(),
            environment={"PATH": os.environ.get("PATH", ""), "GIT_CEILING_DIRECTORIES": str(file.parents[1])},
        )
        if not done.succeeded:
            raise UsageError(f"{patch}: does not apply to its base: {done.stderr.decode(errors='replace').strip()}")
        return file.read_bytes()


@cache
def _keeps(path: Path) -> dict[str, Any]:
    return _toml(path) if path.exists() else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
