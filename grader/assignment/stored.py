"""Values of ours that are computed once and stored between runs: cases that were checked, the closure of an engine.

A stored file is named by a hash of all that it depends on, and begins with a hash of its content: a damaged file is
replaced, and a grading does not need one. The files are in the grader's private folder (grader.system.folders), to
which only its user has access, and hold nothing that a submission reported.
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
from typing import Any

from grader.system import folders

_ROOT = Path(__file__).parents[2]
_CODE = tuple(
    f"{room}/**/*.py" for room in ("reference", "grader/core", "grader/assignment", "grader/judge", "grader/labs")
)
_MOST_FILES = 16
"""Of each kind; a set of cases has about 1 MB. The ones written last are kept."""


def place_of(kind: str, digest: Any) -> Path:
    """Return the path for a value of this kind that depends on what went into a hash, and on our code.

    Raises `OSError` or `GraderError` when this user has no private folder.
    """
    stored = folders.cache_folder() / kind
    stored.mkdir(exist_ok=True)
    digest.update(repr((_code(), sys.version)).encode())
    return stored / str(digest.hexdigest())


@cache
def _code() -> str:
    """A hash of the code that decides what is computed."""
    paths = [path for pattern in _CODE for path in sorted(_ROOT.glob(pattern)) if "tests" not in path.parts]
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)).hexdigest()


def read(place: Path) -> Any:
    """Return the stored value; None when there is none, or when its file was damaged."""
    with contextlib.suppress(OSError, zlib.error):
        content = place.read_bytes()
        size = hashlib.sha256().digest_size
        if hashlib.sha256(content[size:]).digest() == content[:size]:
            return pickle.loads(zlib.decompress(content[size:]))  # noqa: S301 - a private file of ours
    return None


def write(place: Path, value: object) -> None:
    """Store a value, where that can be done."""
    content = zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=place.parent) as folder:
        temporary = Path(folder, place.name)
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
        temporary.rename(place)
        files = {path: path.stat().st_mtime for path in place.parent.iterdir() if path.is_file()}
        for path in sorted(files, key=files.__getitem__, reverse=True)[_MOST_FILES:]:
            path.unlink(missing_ok=True)
