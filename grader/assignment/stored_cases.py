"""Loaded cases, with what the reference does in them, stored between runs: neither changes while its files stay as
they are, and reading and playing those of `paged_kv` takes 0.4 s.

A file is named by a hash of all that it depends on: the case files and what lies beside them, the seed, the reference,
and the code that loads cases. It begins with a hash of its content. A damaged one is replaced; one that cannot be
written is not missed. They lie in the grader's private folder (grader.system.folders), to which only its user has
access, and hold nothing that a submission reported.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path

from grader.assignment import load
from grader.core.case import Case, Grammar
from grader.core.errors import CaseFileError, GraderError
from grader.system import folders
from grader.system.text_file import read_bytes

_ROOT = Path(__file__).parents[2]
_CODE = tuple(
    f"{room}/**/*.py" for room in ("reference", "grader/core", "grader/assignment", "grader/judge", "grader/labs")
)
_MOST_BYTES = 1 << 20
"""Of a file that is hashed; the loader refuses much smaller ones."""
_MOST_FILES = 16
"""Of stored sets of cases; each has about 1 MB. The ones written last are kept."""


def load_folder(folder: Path, grammar: Grammar, *, seed: int, pattern: str = "*") -> list[Case]:
    """Do what `load.load_folder` does, from the stored cases where there are any."""
    place = _place(folder, grammar, seed=seed, pattern=pattern)
    cases = _read(place) if place is not None else None
    if cases is None:
        cases = load.load_folder(folder, grammar, seed=seed, pattern=pattern)
        unchanged = place == _place(folder, grammar, seed=seed, pattern=pattern)  # nobody edited a case meanwhile
        if place is not None and unchanged:
            _write(place, cases)
    return cases


def _place(folder: Path, grammar: Grammar, *, seed: int, pattern: str) -> Path | None:
    """The path for these cases; None when a file cannot be read, or when this user has no private folder."""
    try:
        stored = folders.cache_folder() / "cases"
        stored.mkdir(exist_ok=True)
        digest = hashlib.sha256(repr((_code(), sys.version, str(folder), seed, pattern)).encode())
        for path in [*grammar.code, *sorted(folder.glob("*.toml")), *load.paths(folder, pattern)]:
            digest.update(f"{path}\0".encode() + hashlib.sha256(read_bytes(path, _MOST_BYTES, CaseFileError)).digest())
    except (OSError, GraderError):
        return None
    return stored / digest.hexdigest()


@cache
def _code() -> str:
    """A hash of the code that decides what is loaded."""
    paths = [path for pattern in _CODE for path in sorted(_ROOT.glob(pattern)) if "tests" not in path.parts]
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)).hexdigest()


def _read(place: Path) -> list[Case] | None:
    """The stored cases; None when there are none, or when their file was damaged."""
    with contextlib.suppress(OSError, zlib.error):
        content = place.read_bytes()
        size = hashlib.sha256().digest_size
        if hashlib.sha256(content[size:]).digest() == content[:size]:
            cases: list[Case] = pickle.loads(zlib.decompress(content[size:]))  # noqa: S301 - a private file of ours
            return cases
    return None


def _write(place: Path, cases: list[Case]) -> None:
    content = zlib.compress(pickle.dumps(cases, pickle.HIGHEST_PROTOCOL), 1)
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=place.parent) as folder:
        temporary = Path(folder, place.name)
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
        temporary.rename(place)
        files = {path: path.stat().st_mtime for path in place.parent.iterdir() if path.is_file()}
        for path in sorted(files, key=files.__getitem__, reverse=True)[_MOST_FILES:]:
            path.unlink(missing_ok=True)
