"""Gradescope's side, for tests of our autograder: the tree in its container, and how it reads `results.json`."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.report.view import View
from grader.tests.support.readers import READERS

__all__ = ["Autograder", "unpacked"]

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


@dataclass(frozen=True, slots=True)
class Autograder:
    """What lies in the container under /autograder."""

    place: Path

    @property
    def source(self) -> Path:
        """The zip, unpacked."""
        return self.place / "source"

    @property
    def program(self) -> Path:
        """What is started for each submission."""
        return self.place / "run_autograder"

    @property
    def results(self) -> Path:
        """What is read at the end."""
        return self.place / "results" / "results.json"

    def hand_in(self, *sources: Path, inside: str = ".") -> None:
        """A fresh container for a submission: these files, or the contents of these folders, and nothing of before."""
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
        (self.place / "submission_metadata.json").write_text(json.dumps(_METADATA), encoding="utf-8")

    def read(self) -> dict[str, Any]:
        """What Gradescope reads: by its own description, whether there are points or none."""
        text = self.results.read_text(encoding="utf-8")
        READERS["gradescope"](text, View())
        results: dict[str, Any] = json.loads(text)
        return results


def unpacked(archive: bytes, place: Path) -> Autograder:
    """The container's tree after the zip was uploaded, its programs runnable as unzip makes them."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(place / "source")
        for entry in packed.infolist():
            (place / "source" / entry.filename).chmod(entry.external_attr >> 16 & 0o777)
    made = Autograder(place)
    shutil.copy(made.source / "run_autograder", made.program)
    made.hand_in()
    return made
