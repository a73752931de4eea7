"""Find submissions of a class that are similar: by the fingerprints of copydetect, or with JPlag.

copydetect replaces names by one letter, drops comments and blanks, and hashes each piece of 40 characters (k-gram) of
the remaining text. The share of one program in another is the share of its characters in k-grams that both have. Code
that the course gives does not count. The library's own report is not used: it lists paths, not submissions.

Two defects of copydetect 0.5 are worked around here. If it is given boilerplate, it also drops code that a program
repeats itself, because it tells numpy that the arrays have no duplicates. And its offset at the name of a class is too
small, so a part of a Python program that begins or ends there is marked in the wrong place.

JPlag is not run here. `jplag_files` makes the folder that it reads.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.classroom.discover import find_submissions
from grader.classroom.store import Run, Store
from grader.core.errors import ToolMissing, UsageError
from grader.core.record import Student
from grader.core.sanitize import decoded_lines
from grader.report.class_page import AlikePair, AlikeProgram, file_stems, percent, similar_pages
from grader.report.document import Document, as_csv
from grader.report.phrases import counted

_BLANKS = bytes.maketrans(b"\r\f\v", b"\n  ")
_PSEUDO = re.compile(r"\b(?:self|cls)\b")
"""Ordinary names that the lexer takes for built-in names, which copydetect does not replace."""

_K = 40
"""The characters of a k-gram, two or three lines. Every k-gram counts (a window of 1), so the shares do not depend on
the values of the hashes, which differ from process to process.

Measured on the right samples: with copydetect's default of 25, two programs that only follow the same handout share
84 % at most, a disguised copy 91 % at least; with 40, 78 % and 88 %; with 50, 75 % and 85 %."""
_MOST_BYTES = 1 << 18
"""The largest program that is compared. Reading hostile content of this size takes seconds."""
_MOST_PAIRS = 200
"""The most pairs that are listed and have a page."""
_LEAST = 250
"""The least characters of own code that a program must have: about ten lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """A submission as it was handed in."""

    name: str
    students: tuple[Student, ...] = ()
    content: bytes = b""
    headers: Mapping[str, bytes] = field(default_factory=dict)
    """The student's own headers that the source mentions, by name."""
    reason: str = ""
    """Why the submission has no content; empty if it has."""


def handed_in_folder(folder: Path, lab: Lab) -> list[HandedIn]:
    """Return the submissions in a folder, sorted by name. Raises `UsageError` as `find_submissions` does."""
    submissions = []
    for each in find_submissions(folder, lab.source_name, rule="").submissions:
        content, reason = (each.source.content, "") if each.source is not None else (b"", each.failure)
        if each.source is not None and each.source.finding is not None:
            content, reason = b"", each.source.finding.message
        submissions.append(HandedIn(name=each.name, students=each.students, content=content, reason=reason))
    return submissions


def handed_in_run(store: Store, run: Run) -> list[HandedIn]:
    """Return the submissions of a run, sorted by name. Raises `StoreFailure` for a damaged store."""
    submissions = []
    for entry in [result.entry for result in store.results(run)]:
        content, headers, reason = store.source(entry.source) if entry.source is not None else (b"", {}, entry.failure)
        content = b"" if reason else content
        submissions.append(
            HandedIn(name=entry.submission, students=entry.students, content=content, headers=headers, reason=reason)
        )
    return submissions


@dataclass(frozen=True, kw_only=True)
class FingerprintedProgram:
    """A program and its fingerprint: the `CodeFingerprint` of copydetect without code that the course gives."""

    name: str
    students: tuple[Student, ...]
    lines: tuple[str, ...]
    fingerprint: Any
    blank: int
    """The number of empty lines at the beginning, which the lexer drops."""

    @cached_property
    def line_of(self) -> list[int]:
        """The line number, from 1, of each character of the text that copydetect compares (`filtered_code`)."""
        offsets = [(int(place), int(dropped)) for place, dropped in self.fingerprint.offsets[1:]] or [(0, 0)]
        places = [place for place, _ in offsets]
        dropped = list(accumulate((number for _, number in offsets), max))
        starts = list(accumulate((len(line) + 1 for line in self.lines[self.blank :]), initial=0))[:-1]
        originals = (
            place + dropped[min(bisect_left(places, place), len(places) - 1)]
            for place in range(len(self.fingerprint.filtered_code))
        )
        return [self.blank + bisect_right(starts, original) for original in originals]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarPair:
    """Two programs that were compared."""

    programs: tuple[FingerprintedProgram, FingerprintedProgram]
    shares: tuple[float, float]
    """For each program, the share of it that is also in the other program, 0 to 1."""

    @property
    def share(self) -> float:
        """The larger share, because a short program may be only a part of a long one."""
        return max(self.shares)

    def side_by_side(self) -> tuple[AlikeProgram, AlikeProgram]:
        """Return both programs for a report, each with those of its lines that are also in the other program."""
        first, second = self.programs
        return _in_other(first, second, self.shares[0]), _in_other(second, first, self.shares[1])


def _in_other(program: FingerprintedProgram, other: FingerprintedProgram, share: float) -> AlikeProgram:
    return AlikeProgram(
        name=program.name,
        students=tuple(student.name for student in program.students),
        lines=program.lines,
        share=share,
        equal=_equal_lines(program, other),
    )


def _equal_lines(program: FingerprintedProgram, other: FingerprintedProgram) -> Mapping[int, int]:
    """Map the lines of `program` that are also in the `other` program to their lines in the other program.

    If a k-gram occurs several times in the other program, the place nearest to the end of the previous match counts.
    """
    theirs = other.fingerprint.hash_idx
    of_both = sorted(
        (place, code) for code, places in program.fingerprint.hash_idx.items() if code in theirs for place in places
    )
    equal: dict[int, int] = {}
    done = following = 0
    for place, code in of_both:
        there = _nearest(theirs[code], following)
        following = there + 1
        for character in range(max(done - place, 0), _K):
            equal.setdefault(program.line_of[place + character], other.line_of[there + character])
        done = place + _K
    return equal


def _nearest(places: Sequence[int], wanted: int) -> int:
    """Return the nearest of these ascending places by bisection: a hostile program has one k-gram at every place."""
    at = bisect_left(places, wanted)
    return min(places[max(0, at - 1) : at + 1], key=lambda place: abs(place - wanted))


class Fingerprints:
    """Makes fingerprints of the submissions to a lab, and compares them."""

    def __init__(self, lab: Lab) -> None:
        """Read the code that the course gives. Raises `ToolMissing` if copydetect is not installed."""
        try:
            self._library, self._utils = import_module("copydetect"), import_module("copydetect.utils")
        except ImportError as error:
            raise ToolMissing("copydetect (for grade similar)", "scripts/setup --similar") from error
        self._language = lab.runtime.language
        self._given: set[int] = set()
        for path in lab.starter.values():
            self._given |= self._fingerprint(_lines(path.read_bytes())).hash_idx.keys()

    def _fingerprint(self, lines: Sequence[str]) -> Any:
        joined = "\n".join(lines).strip("\n")
        text = StringIO(_PSEUDO.sub(_like_any_name, joined) if self._language == "python" else joined)
        fingerprint = self._library.CodeFingerprint("", _K, 1, language=self._language, fp=text)
        fingerprint.hash_idx = {int(code): list(map(int, places)) for code, places in fingerprint.hash_idx.items()}
        return fingerprint

    def program(self, submission: HandedIn) -> FingerprintedProgram | str:
        """Return the program with its fingerprint, or the reason why it cannot be compared."""
        if submission.reason or not submission.content:
            return submission.reason or "it is empty"
        if len(submission.content) > _MOST_BYTES:
            return f"it is longer than {_MOST_BYTES // 1024} KiB"
        lines = _lines(submission.content)
        fingerprint = self._fingerprint(lines)
        own = {code: places for code, places in fingerprint.hash_idx.items() if code not in self._given}
        fingerprint.hash_idx, fingerprint.hashes = own, set(own)
        fingerprint.token_coverage = self._utils.get_token_coverage(own, _K, len(fingerprint.filtered_code))
        if fingerprint.token_coverage < _LEAST:
            return "there is too little in it in addition to what the course gives"
        blank = next(number for number, line in enumerate(lines) if line)
        return FingerprintedProgram(
            name=submission.name, students=submission.students, lines=lines, fingerprint=fingerprint, blank=blank
        )

    def pairs(self, programs: Sequence[FingerprintedProgram], threshold: float) -> Iterator[list[SimilarPair]]:
        """Yield for each program its pairs with later programs, except pairs with a `share` below `threshold`."""
        for number, first in enumerate(programs, start=1):
            yield [pair for second in programs[number:] if (pair := self._pair(first, second)).share >= threshold]

    def _pair(self, first: FingerprintedProgram, second: FingerprintedProgram) -> SimilarPair:
        _, shares, _ = self._library.compare_files(first.fingerprint, second.fingerprint)
        return SimilarPair(programs=(first, second), shares=(float(shares[0]), float(shares[1])))


def _best_first(pairs: Sequence[SimilarPair]) -> list[SimilarPair]:
    """Sort pairs by share, but first the best pair of each submission: a large group must not displace other pairs."""
    best: list[SimilarPair] = []
    others: list[SimilarPair] = []
    names: set[str] = set()
    for pair in sorted(pairs, key=lambda pair: -pair.share):
        both = {program.name for program in pair.programs}
        (others if both <= names else best).append(pair)
        names |= both
    return best + others


def _like_any_name(name: re.Match[str]) -> str:
    return "x" * len(name[0])  # the same length, so that each character keeps its place


Counting = Callable[[Iterable[Any], int, str], Iterator[Any]]
"""Takes items, their number and one word for the work; yields the items and shows the progress of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """The pairs of similar submissions of a class."""

    lab: Lab
    pairs: Sequence[AlikePair]
    """The best pair of each submission, then the other pairs; both sorted by share."""
    skipped: Sequence[tuple[str, str]]
    """(name, reason) of each submission that was not compared."""
    summary: str
    """A sentence with the number of pairs."""

    @classmethod
    def among(cls, submissions: Sequence[HandedIn], lab: Lab, progress: Counting, threshold: float = 0.8) -> Alike:
        """Compare all pairs of submissions. Raises `ToolMissing` if copydetect is not installed."""
        fingerprints = Fingerprints(lab)
        read = list(progress(map(fingerprints.program, submissions), len(submissions), "reading"))
        named = zip(submissions, read, strict=True)
        programs = [program for program in read if isinstance(program, FingerprintedProgram)]
        compared = progress(fingerprints.pairs(programs, threshold), len(programs), "comparing")
        pairs = [pair for some in compared for pair in some]
        more = f"; shown are {_MOST_PAIRS} of them, the best of each submission first" * (len(pairs) > _MOST_PAIRS)
        among = counted(len(programs), "submission")
        return cls(
            lab=lab,
            pairs=[pair.side_by_side() for pair in _best_first(pairs)[:_MOST_PAIRS]],
            skipped=[(submission.name, reason) for submission, reason in named if isinstance(reason, str)],
            summary=f"{counted(len(pairs), 'pair')} of {percent(threshold)} or more in {among}{more}",
        )

    def pages(self) -> Iterator[tuple[str, Document]]:
        """Yield (file name, page): first for the list of pairs, then for each pair."""
        title = f"{self.lab.name}: similar submissions"
        return similar_pages(self.pairs, title=title, summary=self.summary, skipped=self.skipped)


def _lines(content: bytes) -> tuple[str, ...]:
    """Return the lines of a program. Form feeds and vertical tabs become spaces; CR and CRLF also end lines."""
    return tuple(decoded_lines(content.replace(b"\r\n", b"\n").translate(_BLANKS).split(b"\n")))


_JPLAG = {"c": ("c", (".c", ".h")), "python": ("python3", (".py",))}
"""By language of a lab: JPlag's name of the language, and the suffixes that JPlag reads (jplag/JPlag, languages/)."""
_SUBMISSIONS, _BASE = "submissions", "base-code"


def jplag_files(submissions: Sequence[HandedIn], lab: Lab) -> dict[str, bytes]:
    """Return the folder that JPlag reads, as file contents by path.

        submissions/ID/ring.c    the student's files, exactly as handed in
        base-code/ring.c         what the course gave; JPlag ignores equal code in submissions
        submissions.csv          the submission and students of each ID; JPlag does not read this file

    JPlag shows the IDs. So an ID is made of the students' ids (`sid`) if the roster has them, and not of their names.
    The folder contains no points and no cases.

    Raises `UsageError` if JPlag does not know the language of the lab.
    """
    if lab.runtime.language not in _JPLAG:
        known = ", ".join(name for name, _ in _JPLAG.values())
        raise UsageError(f"JPlag does not compare submissions of {lab.name}; this export knows its languages {known}")
    _, suffixes = _JPLAG[lab.runtime.language]
    stems = file_stems(map(_shown_name, submissions))
    rows = [("folder", "submission", "students")]
    files = {f"{_BASE}/{name}": path.read_bytes() for name, path in lab.starter.items() if name.endswith(suffixes)}
    for stem, submission in zip(stems, submissions, strict=True):
        rows.append((stem, submission.name, "; ".join(student.name for student in submission.students)))
        for name, content in {lab.source_name: submission.content, **submission.headers}.items():
            files[f"{_SUBMISSIONS}/{stem}/{Path(name).name}"] = content
    return files | {"submissions.csv": as_csv(rows).encode()}


def jplag_command(lab: Lab, folder: Path) -> list[str]:
    """Return the command that compares the submissions in a folder of `jplag_files`."""
    base = ["--base-code", str(folder / _BASE)] if (folder / _BASE).is_dir() else []
    words = ["--language", _JPLAG[lab.runtime.language][0], *base, "--result-file", str(folder / "result")]
    return ["java", "-jar", "jplag.jar", *words, str(folder / _SUBMISSIONS)]


def _shown_name(submission: HandedIn) -> str:
    """Return the ids of the students, or the submission's own name if the roster lacks one of their ids."""
    ids = [student.sid for student in submission.students]
    return "-".join(ids) if ids and all(ids) else submission.name
