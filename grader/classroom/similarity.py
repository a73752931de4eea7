"""Which submissions of a class are alike, by the fingerprints of copydetect.

copydetect replaces names by one letter, drops comments and blanks, and hashes each piece of 40 characters (k-gram) of
what is left. The share of one program in another is the share of its characters that lie in a k-gram of both. What
the course gives is left out. The library's own report is not used: it lists paths, not submissions.

Two things of copydetect 0.5 are done here instead. With boilerplate it also drops what a program repeats of its own,
because it calls numpy for arrays without duplicates. And its offset at the name of a class is too small, so a part of
a Python program that begins or ends there is marked in the wrong place.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeVar

from grader.assignment.lab import Lab
from grader.assignment.source import Source
from grader.classroom.discover import find_submissions
from grader.classroom.store import Run, Store
from grader.core.errors import ToolMissing
from grader.core.record import Student
from grader.core.sanitize import decoded_lines
from grader.report.document import Document
from grader.report.phrases import counted
from grader.report.similar_page import AlikePair, AlikeProgram, percent, similar_pages

T = TypeVar("T")

_BLANKS = bytes.maketrans(b"\r\f\v", b"\n  ")
_PSEUDO = re.compile(r"\b(?:self|cls)\b")
"""Names that the lexer of Python takes for words of the language."""

_K = 40
"""The characters of a k-gram, two or three lines. Every k-gram counts (a window of 1), so the shares do not depend on
the values of the hashes, which Python draws anew for each process.

Measured on the right samples: with copydetect's default of 25, two programs that only follow the same handout share
84 % at most, a disguised copy 91 % at least; with 40, 78 % and 88 %; with 50, 75 % and 85 %."""
_MOST_BYTES = 1 << 18
"""The size of a program that is compared: reading a file of hostile content of this size takes seconds."""
_MOST_PAIRS = 200
"""The number of pairs that are listed and have a page."""
_LEAST = 250
"""The characters of its own that a program must have: about ten lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """What was handed in under a name; without content `reason` says why."""

    name: str
    students: tuple[Student, ...] = ()
    content: bytes = b""
    reason: str = ""


def handed_in_folder(folder: Path, lab: Lab) -> list[HandedIn]:
    """Return what was handed in, in the order of the names. Raises `UsageError` as `find_submissions` does."""
    return [
        _handed_in(submission.name, submission.students, submission.source, submission.failure)
        for submission in find_submissions(folder, lab.source_name, rule="").submissions
    ]


def handed_in_run(store: Store, run: Run) -> list[HandedIn]:
    """Return what was handed in for a run, in the order of the names. Raises `StoreFailure` for damage."""
    everything = []
    for entry in [result.entry for result in store.results(run)]:
        content, _, failure = store.source(entry.source) if entry.source is not None else (b"", {}, entry.failure)
        everything.append(
            HandedIn(
                name=entry.submission, students=entry.students, content=b"" if failure else content, reason=failure
            )
        )
    return everything


def _handed_in(name: str, students: tuple[Student, ...], source: Source | None, failure: str) -> HandedIn:
    if source is None or source.finding is not None:
        reason = source.finding.message if source is not None and source.finding is not None else failure
        return HandedIn(name=name, students=students, reason=reason)
    return HandedIn(name=name, students=students, content=source.content)


@dataclass(frozen=True, kw_only=True)
class FingerprintedProgram:
    """A program and its fingerprint: the `CodeFingerprint` of copydetect without what the course gives."""

    name: str
    students: tuple[Student, ...]
    lines: tuple[str, ...]
    fingerprint: Any
    blank: int
    """The number of empty lines at the beginning, which the lexer drops."""

    @cached_property
    def line_of(self) -> list[int]:
        """The line, from 1, of each character of the text without names and comments."""
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
    """The share of each that is in the other one, 0 to 1."""

    @property
    def share(self) -> float:
        """The larger of the two shares: a short program may be a part of a long one."""
        return max(self.shares)

    def side_by_side(self) -> tuple[AlikeProgram, AlikeProgram]:
        """Return both programs for a report, with the lines that are in the other one."""
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
    """Return the lines that are in the other program too, each with its line there.

    What occurs there several times is matched with the place that goes on from the one before.
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
    """Return the nearest of these ascending places. A hostile program has one k-gram at every place."""
    at = bisect_left(places, wanted)
    return min(places[max(0, at - 1) : at + 1], key=lambda place: abs(place - wanted))


class Fingerprints:
    """Makes fingerprints of the submissions to a lab, and compares them."""

    def __init__(self, lab: Lab) -> None:
        """Read what the course gives. Raises `ToolMissing` without copydetect."""
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
            return "there is too little in it beside what the course gives"
        blank = next(number for number, line in enumerate(lines) if line)
        return FingerprintedProgram(
            name=submission.name, students=submission.students, lines=lines, fingerprint=fingerprint, blank=blank
        )

    def pairs(self, programs: Sequence[FingerprintedProgram], threshold: float) -> Iterator[list[SimilarPair]]:
        """Yield for each program the pairs with a later one in which the share of either is at least `threshold`."""
        for number, first in enumerate(programs, start=1):
            yield [pair for second in programs[number:] if (pair := self._pair(first, second)).share >= threshold]

    def _pair(self, first: FingerprintedProgram, second: FingerprintedProgram) -> SimilarPair:
        _, shares, _ = self._library.compare_files(first.fingerprint, second.fingerprint)
        return SimilarPair(programs=(first, second), shares=(float(shares[0]), float(shares[1])))


def _best_first(pairs: Sequence[SimilarPair]) -> list[SimilarPair]:
    """Order pairs so that many submissions with one source in common do not displace all the others."""
    best: list[SimilarPair] = []
    others: list[SimilarPair] = []
    names: set[str] = set()
    for pair in sorted(pairs, key=lambda pair: -pair.share):
        both = {program.name for program in pair.programs}
        (others if both <= names else best).append(pair)
        names |= both
    return best + others


def _like_any_name(name: re.Match[str]) -> str:
    return "x" * len(name[0])  # as long, so that each character stays at its place


class Counting(Protocol):
    """Hands items on, and shows how many of them were handled."""

    def __call__(self, items: Iterable[T], total: int, doing: str, /) -> Iterator[T]:
        """Yield the items, of which there are `total`; `doing` says what is done with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """The submissions of a class that are alike."""

    lab: Lab
    pairs: Sequence[AlikePair]
    """For each submission the pair in which it is most alike, then the others; both begin with the largest share."""
    skipped: Sequence[tuple[str, str]]
    """The names of the submissions that were not compared, each with the reason."""
    summary: str
    """How many pairs there are, in words."""

    @classmethod
    def among(cls, submissions: Sequence[HandedIn], lab: Lab, progress: Counting, threshold: float = 0.8) -> Alike:
        """Compare all with each other. Raises `ToolMissing` without copydetect."""
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
        """Yield the file name and the page of the list of pairs, then those of each pair."""
        title = f"{self.lab.name}: submissions that are alike"
        return similar_pages(self.pairs, title=title, summary=self.summary, skipped=self.skipped)


def _lines(content: bytes) -> tuple[str, ...]:
    """Return the lines of a program; other blanks and other ends of lines than usual make no difference."""
    return tuple(decoded_lines(content.replace(b"\r\n", b"\n").translate(_BLANKS).split(b"\n")))
