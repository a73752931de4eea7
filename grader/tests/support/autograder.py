"""A stand-in for Gradescope in tests of the autograder: the tree in its container, and a reader of `results.json`."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.report.document import View
from grader.tests.support.readers import READERS

_METADATA = {
    "id": 123456,
    "created_at": "2026-11-20T14:22:32.365935-05:00",
    "assignment": {
        "id": 25828,
        "course_id": 1000,
        "title": "Homework 3",
        "due_date": "2026-11-30T00:00:13.158726-05:00",
        "late_due_date": None,
        "release_date": "2026-11-02T00:00:13.158726-05:00",
        "group_size": None,
        "group_submission": False,
        "total_points": "100.0",
    },
    "submission_method": "upload",
    "users": [{"email": "student@example.com", "id": 1234, "name": "A Student"}],
    "previous_submissions": [],
}


_PREVIOUS = {
    "submission_time": "2026-11-19T14:22:32.365935-05:00",
    "score": 30.0,
    "results": {"tests": [], "visibility": "visible"},
}


@dataclass(frozen=True, slots=True)
class Autograder:
    """The contents of /autograder in the container."""

    place: Path

    @property
    def source(self) -> Path:
        """The folder with the unpacked zip."""
        return self.place / "source"

    @property
    def program(self) -> Path:
        """The program that is started for each submission."""
        return self.place / "run_autograder"

    @property
    def results(self) -> Path:
        """The file that Gradescope reads at the end."""
        return self.place / "results" / "results.json"

    def hand_in(self, *sources: Path, inside: str = ".", before: int = 0) -> None:
        """Submit these files, or the contents of these folders, to a fresh container; remove everything earlier.

        Their student has handed in `before` already, that many times.
        """
        for name in ("submission", "results"):
            shutil.rmtree(self.place / name, ignore_errors=True)
            (self.place / name).mkdir(mode=0o755)
        folder = self.place / "submission" / inside
        folder.mkdir(parents=True, exist_ok=True)
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, folder, dirs_exist_ok=True)
            else:
                shutil.copy(source, folder)
        (self.place / "submission_metadata.json").unlink(missing_ok=True)
        (self.place / "submission_metadata.json").write_text(
            json.dumps(_METADATA | {"previous_submissions": [_PREVIOUS] * before}), encoding="utf-8"
        )

    def read(self) -> dict[str, Any]:
        """Return the results, with or without points, after a check against Gradescope's own description."""
        text = self.results.read_text(encoding="utf-8")
        READERS["gradescope"](text, View())
        results: dict[str, Any] = json.loads(text)
        return results


def unpacked(archive: bytes, place: Path) -> Autograder:
    """Return the container's tree after the upload of the zip, with the permissions that unzip gives its files."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(place / "source")
        for entry in packed.infolist():
            (place / "source" / entry.filename).chmod(entry.external_attr >> 16 & 0o777)
    made = Autograder(place)
    shutil.copy(made.source / "run_autograder", made.program)
    made.hand_in()
    return made
