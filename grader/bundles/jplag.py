"""What JPlag reads: a folder for each submission of a run, and the code that all of them began with.

    submissions/ID/ring.c    the student's files, byte for byte as handed in
    base-code/ring.c         what the course gave, which JPlag leaves out of account
    submissions.csv          whose ID it is; JPlag does not read it

JPlag shows the names of these folders, so where the roster has ids they are the ids, not the names of people. Nothing
of a grading is there: no points, no cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.assignment.lab import Lab
from grader.bundles.bundle import File
from grader.classroom.store import Run, Store
from grader.classroom.stored_result import Entry
from grader.core.errors import UsageError
from grader.report.class_page import file_stems
from grader.report.document import as_csv

_LANGUAGES = {"c": ("c", (".c", ".h")), "python": ("python3", (".py",))}
"""By the language of a lab: JPlag's name of it, and the files that JPlag reads (jplag/JPlag, languages/)."""

_SUBMISSIONS, _BASE = "submissions", "base-code"


@dataclass(frozen=True, slots=True, kw_only=True)
class JPlagFolder:
    """The files for JPlag, and who has none."""

    language: str
    """JPlag's name of it."""
    files: tuple[File, ...]
    count: int
    """The number of submissions."""
    without: tuple[str, ...]
    """The names of submissions of which the store has no file."""

    def command(self, folder: Path) -> tuple[str, ...]:
        """Return the words of the command that compares the submissions in this folder."""
        base = ("--base-code", str(folder / _BASE)) if any(file.name.startswith(_BASE) for file in self.files) else ()
        result = ("--result-file", str(folder / "result"))
        return ("java", "-jar", "jplag.jar", "--language", self.language, *base, *result, str(folder / _SUBMISSIONS))


def jplag_folder(store: Store, run: Run, lab: Lab) -> JPlagFolder:
    """Return the files for JPlag of a run.

    Raises `UsageError` where JPlag does not know the lab's language, or nobody handed in a file, and `StoreFailure`
    when what was submitted is damaged.
    """
    if lab.runtime.language not in _LANGUAGES:
        known = ", ".join(name for name, _ in _LANGUAGES.values())
        raise UsageError(f"JPlag does not compare submissions of {lab.name}; this export knows its languages {known}")
    language, suffixes = _LANGUAGES[lab.runtime.language]
    entries = [result.entry for result in store.results(run)]
    sources = {entry.submission: _source(store, lab, entry) for entry in entries}
    there = [entry for entry in entries if sources[entry.submission]]
    if not there:
        raise UsageError(f"run {run.id}: no submission has a file to compare")
    stems = file_stems(map(_shown_name, there))
    files = [File(name="submissions.csv", content=_list(there, stems))]
    for name, path in lab.starter.items():
        if Path(name).suffix in suffixes:
            files.append(File(name=f"{_BASE}/{name}", content=path.read_bytes()))
    for entry, stem in zip(there, stems, strict=True):
        submitted = sources[entry.submission]
        files += [File(name=f"{_SUBMISSIONS}/{stem}/{name}", content=text) for name, text in submitted.items()]
    without = tuple(entry.submission for entry in entries if not sources[entry.submission])
    return JPlagFolder(language=language, files=tuple(files), count=len(there), without=without)


def _source(store: Store, lab: Lab, entry: Entry) -> dict[str, bytes]:
    """Return the files that were handed in, by their names; none where there is no source."""
    if entry.source is None:
        return {}
    content, headers, failure = store.source(entry.source)
    return {} if failure else {lab.source_name: content, **{Path(name).name: text for name, text in headers.items()}}


def _shown_name(entry: Entry) -> str:
    """Return the ids of the students of a submission; its own name where the roster does not have all of them."""
    ids = [student.sid for student in entry.students]
    return "-".join(ids) if ids and all(ids) else entry.submission


def _list(entries: Sequence[Entry], stems: Sequence[str]) -> bytes:
    rows = [
        (stem, entry.submission, "; ".join(student.name for student in entry.students))
        for entry, stem in zip(entries, stems, strict=True)
    ]
    return as_csv([("folder", "submission", "students"), *rows]).encode()
