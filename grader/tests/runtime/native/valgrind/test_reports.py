"""Valgrind's report is read once, as far as it fits and up to stated sizes; what a program spoils of it is its loss."""

from __future__ import annotations

import pytest

from grader.core.errors import OptionalStages
from grader.core.verdict import SourceLine
from grader.runtime.native.valgrind.reports import read
from grader.tests.runtime.native.test_replay import TOKEN
from grader.tests.support.hostile_input import ERROR, WELL, course, mark, quickly, said

_LINE = SourceLine(file="llm_memory.c", line=7, function="f")


def places(*pieces: bytes) -> list[tuple[int, int]]:
    """Where the errors in them belong."""
    return [(error.case, error.operation) for error in said(*pieces).errors]


@pytest.mark.parametrize(
    "forged",
    [
        mark(4, 1, token=TOKEN + 1), mark(4, 3), mark(4, 99), mark(3, 1), mark(999, 0), mark(2**60, 0), mark(4, 2**60),
        mark(4, 2, word="leaks"), mark(3, 3, word="leaks"), b"<clientmsg><text>pkv errors</text></clientmsg>",
        b"<clientmsg><text>pkv errors 1 " + b"1" * 5000 + b" 1</text></clientmsg>",
    ],
    ids=range(11),
)  # fmt: skip
def test_marks_that_cannot_be_ours_say_nothing(forged: bytes) -> None:
    """Without the token, of cases that do not run or operations that they have not: the next true one counts."""
    assert places(ERROR, forged, mark(4, 1)) == [(4, 1)]


_SPOILED = {
    "longer": (b"x" * 4_000_001, "longer than 4 MB"),
    "one error": (b"<error>" + b"x" * 70_000 + b"</error>", "more than 64 KB"),
    "errors": (b"<error></error>" * 1001, "more than 1000 errors"),
    "pieces": (b"<clientmsg></clientmsg>" * 60_000, "more than 50000 pieces"),
    "none": (b"", "none of the errors that were counted"),
}


@pytest.mark.parametrize("name", _SPOILED)
def test_a_report_beyond_its_bounds_says_which(name: str) -> None:
    """What is behind it is not read; what came before is."""
    document, words = _SPOILED[name]
    with quickly():
        found = said(*([ERROR, mark(4, 0)] if name != "none" else []), document)

    assert words in found.unread
    assert len(found.errors) == (name != "none")


_NUMBERS = b"<error><stack><frame><ip>0x%s</ip><line>%s</line></frame></stack></error>" % (b"1" * 30_000, b"9" * 30_000)
_HOSTILE = {
    "opened": b"<error>" * 550_000,
    "closed": b"</error>" * 480_000,
    "crossed": b"<error></clientmsg><clientmsg></error>" * 100_000,
    "asked": b"<clientmsg>pkv hang " * 190_000,
    "deep": (b"<error>" + b"<a>" * 9000 + b"</a>" * 9000 + b"</error>") * 60,
    "unicode": (b"<error>" + "\u202e".encode() * 20_000 + b"</error>") * 60,
    "numbers": _NUMBERS * 60,
    "stacks": (b"<error>" + b"<stack><frame><ip>0x1</ip></frame></stack>" * 1500 + b"</error>") * 60,
}  # fmt: skip


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_documents_are_read_in_linear_time(name: str) -> None:
    """Four megabytes of each took minutes, or ended in an exception; a true error in front of them is found."""
    with quickly():
        found = said(ERROR, mark(4, 0), _HOSTILE[name])

    assert (found.errors[0].case, found.errors[0].operation, found.errors[0].lines) == (4, 0, (_LINE,))


def test_an_error_cannot_be_swallowed_by_one_that_was_begun_before_it() -> None:
    """Both were one piece that could not be read, so that the true one was hidden."""
    assert places(b"<error><kind>", ERROR, mark(4, 0)) == [(4, 0)]


def leak(blocks: int, function: str, *, allocator: str = "/tmp/checked") -> bytes:
    """Return a loss record as Valgrind prints it: allocated in `function` of the student's file."""
    return (
        "<error><kind>Leak_DefinitelyLost</kind><xwhat><text>lost</text>"
        f"<leakedbytes>{blocks * 8}</leakedbytes><leakedblocks>{blocks}</leakedblocks></xwhat><stack>"
        f"<frame><ip>0x1</ip><obj>{allocator}</obj><fn>allocate</fn></frame>"
        f"<frame><ip>0x2</ip><obj>/tmp/checked</obj><fn>{function}</fn><file>llm_memory.c</file><line>7</line></frame>"
        "<frame><ip>0x3</ip><obj>/tmp/checked</obj><fn>lab_apply</fn></frame></stack></error>"
    ).encode()


def unfreed(*pieces: bytes, left: int = 0) -> list[tuple[tuple[int, ...], int, dict[str, int]]]:
    """Return what is read of lists of unfreed memory, where each of the cases 4 and 2 reported `left` allocations."""
    progress = course(errors=0)
    progress.left = dict.fromkeys(progress.left, left)
    report = read(b"".join([*pieces, WELL]), progress, "llm_memory.c", lambda _: {}, optional=OptionalStages())
    return [(one.cases, one.unreported, dict(one.by_function)) for one in report.unfreed]


@pytest.mark.parametrize("words", [(4, 2), (7, 4), (4, 7), (2**60, 4)])
def test_a_list_of_cases_that_did_not_run_in_this_order_is_none(words: tuple[int, int]) -> None:
    """A program may write into the report."""
    assert unfreed(leak(3, "f"), mark(*words, word="unfreed")) == []
