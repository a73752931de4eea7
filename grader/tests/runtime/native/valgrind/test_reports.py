"""Valgrind's report is read once, as far as it fits and up to stated sizes; what a program spoils of it is its loss."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from grader.core.optional_stages import OptionalStages
from grader.core.verdict import SourceLine, Verdict
from grader.runtime.native import runtime
from grader.runtime.native.replay import FrameKind, Frames
from grader.runtime.native.valgrind.memcheck import memcheck
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.native.valgrind.reports import followed, read
from grader.tests.runtime.native.test_replay import TOKEN, frame
from grader.tests.support.hostile_input import ERROR, WELL, course, mark, quickly, said
from grader.tests.support.programs import (
    first_case,
    graded_text,
    native,
    right,
    second_case,
)
from grader.tests.support.raising import Raising

_END = struct.pack("<iiq", 0, 0, 1000)
_LINE = SourceLine(file="llm_memory.c", line=7, function="f")


def places(*pieces: bytes) -> list[tuple[int, int]]:
    """Where the errors in them belong."""
    return [(error.case, error.operation) for error in said(*pieces).errors]


def test_marks_say_where_errors_belong() -> None:
    """In the order of the plan."""
    assert places(ERROR, mark(4, 1), ERROR, mark(2, 0), ERROR, mark(2, 3, word="leaks")) == [(4, 1), (2, 0), (2, 3)]


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


def test_a_mark_does_not_go_back() -> None:
    """What was running before is running no longer."""
    assert places(mark(4, 1), ERROR, mark(4, 1), ERROR, mark(4, 0), mark(2, 2)) == [(2, 2), (2, 2)]


def test_marks_of_operations_without_errors_say_nothing() -> None:
    """The harness sends none; the error is where the program came to."""
    found = said(ERROR, mark(4, 1), errors=0)

    assert [(error.case, error.operation) for error in found.errors] == [(2, 3)]


@pytest.mark.parametrize(
    ("planned", "stream"),
    [
        ("other case", frame(FrameKind.BEGIN, 2, -1)),
        ("no case", frame(FrameKind.BEGIN, 77, -1)),
        ("twice", frame(FrameKind.BEGIN, 4, -1) * 2),
        ("not running", frame(FrameKind.STEP, 4, 0, bytes(4))),
        ("too far", frame(FrameKind.BEGIN, 4, -1) + frame(FrameKind.STEP, 4, 1, bytes(4))),
        ("body", frame(FrameKind.BEGIN, 4, -1) + frame(FrameKind.STEP, 4, 0, bytes(5))),
        ("steps", frame(FrameKind.BEGIN, 4, -1) + b"".join(frame(FrameKind.STEP, 4, n, bytes(4)) for n in range(9))),
        ("next", frame(FrameKind.BEGIN, 4, -1) + frame(FrameKind.BEGIN, 2, -1) + frame(FrameKind.STEP, 2, 0, bytes(4))),
        ("end", frame(FrameKind.END, 4, -1, _END) + frame(FrameKind.END, 2, -1, _END)),
    ],
)
def test_frames_of_cases_that_do_not_run_are_dropped(planned: str, stream: bytes) -> None:
    """Only the cases of the plan are ever spoken of, in their order and with their operations."""
    found = followed(Frames(stream, TOKEN, 6), {4: 3, 2: 3}, TOKEN)

    assert found.begun in ([], [4]), planned
    assert found.ended == set()
    assert sum(map(len, found.did.values())) == (3 if planned == "steps" else 0)


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


def test_where_nobody_knows_a_line_all_stacks_are_asked_for_at_once() -> None:
    """Each error had a process of addr2line; the functions' names are another question, whose failure costs nothing."""
    asked = []

    def look_up(stacks: object) -> dict[tuple[int, ...], tuple[SourceLine, ...]]:
        asked.append(stacks)
        return {(number,): (_LINE,) for number in range(1, 101)}

    document = b"".join(
        b"<error><stack><frame><ip>%#x</ip></frame></stack></error>" % number for number in range(1, 101)
    )
    found = read(document + mark(4, 0) + WELL, course(), "llm_memory.c", look_up, optional=Raising())

    assert len(found.errors) == 100
    assert len(asked) == 2


def test_an_error_without_a_line_counts_where_it_was_counted() -> None:
    """A file can hide its lines; what happens between the calls, in code of ours, is none of theirs."""
    elsewhere = ERROR.replace(b"llm_memory.c", b"other.c")
    (error,) = said(elsewhere, mark(4, 0)).errors

    assert (error.case, error.operation, error.lines) == (4, 0, ())
    assert said(elsewhere, mark(4, 0), errors=0).errors == ()
    assert [one.lines for one in said(ERROR, elsewhere, mark(4, 0)).errors] == [(_LINE,)]


def spoiling(checked: Checked) -> Checked:
    """The same, of a process whose report is not whole at the end of its last case."""
    return replace(checked, cut=True, unread=(((1, 5), "was cut off before its end", (0, 1)),))


@pytest.mark.parametrize("times", [1, 2])
def test_a_report_that_is_cut_off_twice_is_the_programs_own_fault(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Once may be somebody else's doing; twice, while a known-good program's is whole, costs `memory-error`.

    It ended in a judge error each time, so a program that did it never had a score.
    """
    runs: list[Checked] = []

    def disturbed(work: object, program: object, **options: object) -> Checked:
        checked = memcheck(work, program, **options)  # type: ignore[arg-type]
        known_good = getattr(program, "content", b"") == native().known_good(work).content  # type: ignore[arg-type]
        runs.append(checked)
        return checked if known_good or len(runs) > 2 * times - 1 else spoiling(checked)

    monkeypatch.setattr(runtime, "memcheck", disturbed)
    record = graded_text(right(), first_case(), second_case(), valgrind=True)
    (rule,) = (rule for rule in record.rules if rule.rule == "memory-error")

    assert len(runs) == 3
    if times == 1:
        assert record.verdict is Verdict.ACCEPTED
    else:
        (finding,) = record.findings
        assert (rule.points, rule.passed) == (0, 0)
        assert (finding.case, finding.verdict) == ("made/second", Verdict.MEMORY_ERROR)
        assert "was cut off before its end" in finding.message


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


def test_what_the_cases_reported_as_left_is_not_unreported() -> None:
    """The list has all blocks of all cases since the first one."""
    assert unfreed(leak(3, "f"), mark(4, 4, word="unfreed"), leak(6, "f"), mark(2, 4, word="unfreed"), left=3) == [
        ((4,), 0, {"f": 3}),
        ((2,), 0, {"f": 3}),
    ]


def test_more_blocks_than_the_cases_reported_belong_to_the_cases_since_the_last_list() -> None:
    """By the function that the driver called."""
    listed = unfreed(leak(1, "f"), mark(4, 4, word="unfreed"), leak(1, "f"), leak(2, "g"), mark(2, 4, word="unfreed"))

    assert listed == [((4,), 1, {"f": 1}), ((2,), 2, {"g": 2})]


def test_a_list_that_begins_with_another_case_repeats_nothing() -> None:
    """The harness began anew with its memory, after Valgrind was told that all of it is free."""
    assert unfreed(leak(5, "f"), mark(4, 4, word="unfreed"), leak(1, "f"), mark(2, 2, word="unfreed")) == [
        ((4,), 5, {"f": 5}),
        ((2,), 1, {"f": 1}),
    ]


def test_memory_that_libc_keeps_for_itself_is_nobodys_leak() -> None:
    """Valgrind's own malloc gave it to libc; the harness's functions allocate what the student's code asks for."""
    libc = leak(3, "f", allocator="/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so")

    assert unfreed(libc, mark(2, 4, word="unfreed")) == [((4, 2), 0, {})]


@pytest.mark.parametrize("words", [(4, 2), (7, 4), (4, 7), (2**60, 4)])
def test_a_list_of_cases_that_did_not_run_in_this_order_is_none(words: tuple[int, int]) -> None:
    """A program may write into the report."""
    assert unfreed(leak(3, "f"), mark(*words, word="unfreed")) == []


def test_a_report_without_its_last_list_is_incomplete() -> None:
    """Each process lists at its end what was never freed."""
    listed = read(
        b"".join([mark(2, 4, word="unfreed"), WELL]),
        course(errors=0),
        "llm_memory.c",
        lambda _: {},
        optional=OptionalStages(),
    )
    missing = read(
        b"".join([mark(4, 4, word="unfreed"), WELL]),
        course(errors=0),
        "llm_memory.c",
        lambda _: {},
        optional=OptionalStages(),
    )

    assert listed.unread == ""
    assert missing.unread == "lacks the list of memory that was never freed"
