"""Labelled samples, by which the grader is tested: a program and its label, in submissions/LAB/VERDICT/NAME/.

The label (expect.toml) holds what a person claims: verdict, rules, a summary. The range of points that a sample may
get follows from the rubric: scripts/golden grades all samples of a lab and writes their ranges to one file
(keeps.toml), so that a change of the rubric changes only one other file.

A program that differs from another sample in a few lines is stored as a patch: `base = "accepted/NAME"` in its label
and mistake.patch next to it. So a reader sees the mistake and not four hundred lines. git applies the patch: git is
installed wherever a clone is, and handles everything that a patch may contain.

covering.toml names a few samples of a lab that together test what all samples test. knock_outs.toml says, for
each call, how many points a fair teacher gives a right program in which this call does nothing.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from grader.core.errors import UsageError
from grader.core.verdict import Verdict
from grader.system import process
from grader.system.process_tree import Patience

LABEL, KEEPS, COVERING, PATCH = "expect.toml", "keeps.toml", "covering.toml", "mistake.patch"
KNOCK_OUTS = "knock_outs.toml"
_BASE = re.compile(r"\w+/\w+", re.ASCII)
_SAMPLES = Path(__file__).parents[2] / "submissions"


def label_of(sample: Path) -> dict[str, Any]:
    """Return the label of a sample with the points that it may keep; {} for an accepted sample without a label.

    Raises `UsageError` for a label that cannot be read.
    """
    if not (sample / LABEL).exists():
        return {}
    label = read_toml(sample / LABEL)
    keeps = _keeps(sample.parents[1] / KEEPS).get(f"{sample.parent.name}/{sample.name}")
    return label if keeps is None else label | {"keeps": keeps}


def is_patched(sample: Path) -> bool:
    """Whether a folder is a sample of this clone that is stored as a patch.

    The folder must be submissions/LAB/VERDICT/NAME, where LAB has cases and VERDICT is a verdict. Otherwise a student's
    folder could name a right program as its base.
    """
    place = sample.resolve()
    return (
        len(place.parts) > 3
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
    base = read_toml(sample / LABEL).get("base")
    whole = sample.parents[1] / base / source_name if isinstance(base, str) and _BASE.fullmatch(base) else None
    if whole is None or not whole.is_file():
        raise UsageError(f'{sample / LABEL}: {PATCH} needs a line such as base = "accepted/NAME", a whole sample')
    return _patched(whole.read_bytes(), sample / PATCH, source_name)


def samples_in(folder: Path, source_name: str) -> list[Path]:
    """Return the folders of all samples of a lab, sorted; `folder` is the lab's folder of samples."""
    return sorted({path.parent for name in (source_name, PATCH) for path in folder.glob(f"*/*/{name}")})


def covering_samples(folder: Path, source_name: str) -> list[Path]:
    """Return the folders of the samples in covering.toml, in its order; without covering.toml, of all samples."""
    if not (folder / COVERING).exists():
        return samples_in(folder, source_name)
    return [folder / name for name in read_toml(folder / COVERING)["samples"]]


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
    return read_toml(path) if path.exists() else {}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file about samples. Raises `UsageError` if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
