"""The grader is bounded while it reads what a program sends: an attack costs it seconds, and the program its case."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.core.verdict import Verdict
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.replay import FrameKind, Frames
from grader.runtime.native.symbolize import source_lines
from grader.runtime.protocol import End
from grader.system import process, sandbox
from grader.system.budget import Budget
from grader.system.process import Completed
from grader.system.sandbox import Limits, Workspace
from grader.tests.runtime.native.test_replay import TOKEN, frame, story, taken_down
from grader.tests.support.hostile_input import quickly
from grader.tests.support.programs import (
    POSIX,
    around,
    expected_records,
    first_case,
    graded_text,
    native,
    right,
    second_case,
)

_END = struct.pack("<iiq", 0, 0, 1000)
EVENT = struct.Struct("<5i4x4Qq")
_BAD_FREE, _LIVE = 1, 3


# ---------------------------------------------------------------- the stream of frames


def frames_of(stream: bytes, operations: int = 0) -> list[int]:
    """The kinds of the frames in it."""
    return [one.kind for one in Frames(stream, TOKEN, operations)]


def test_lengths_that_lie_are_not_copied() -> None:
    """Each of these frames claims to be followed by 20 MB: together they were as many copies."""
    with quickly():
        assert frames_of(frame(FrameKind.STEP, 0, length=20_000_000) * 19_000 + bytes(30_000_000)) == [FrameKind.STEP]


def test_a_flood_does_not_complete_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forges all records and then floods hides the end, so the last operation was not seen."""
    honest = story(0, *expected_records(first_case()))[: -len(frame(FrameKind.END, 0, -1, _END))]
    one, _ = taken_down(monkeypatch, honest + frame(FrameKind.LEFT, 0) * 30_000)

    assert not one.complete
    assert compare(one, lab().model).ending_kind == "stopped"


def test_events_of_a_case_are_bounded_and_leaks_have_a_place_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that the case has not are none; a crowd of bad frees hides no leak."""
    bad, live = (EVENT.pack(event, 0, 0, 0, 0, 8, 1, 2, 3, 0) for event in (_BAD_FREE, _LIVE))
    crowd = frame(FrameKind.BLOCK, 0, 0, bad) * 3000 + frame(FrameKind.BLOCK, 0, 6, live) * 3000
    begin = frame(FrameKind.BEGIN, 0, -1)
    one, _ = taken_down(monkeypatch, begin + crowd)
    odd, _ = taken_down(monkeypatch, begin + b"".join(frame(FrameKind.BLOCK, 0, at, bad) for at in (-2, 7, 2**31 - 1)))

    assert [sum(event.event == kind for event in one.events) for kind in (_BAD_FREE, _LIVE)] == [1000, 1000]
    assert odd.events == []


# ---------------------------------------------------------------- what a program may send at all


def test_who_floods_a_channel_is_ended() -> None:
    """It was read and thrown away until the time was over."""
    done = process.run(
        lambda ends: ["sh", "-c", f"exec yes >/proc/self/fd/{ends[0]}"],
        cwd=Path("/"), limits=Limits(wall_seconds=60), environment={"PATH": "/usr/bin:/bin"}, channels=1,
        most_channel=10_000_000,
    )  # fmt: skip

    assert (done.flooded, done.timed_out, done.silent) == (True, False, False)
    assert (len(done.channels[0]), done.cut) == (10_000_000, frozenset({"channel 0"}))


_ALL_DESCRIPTORS = "for (int fd = 3; fd < 1024; fd++)"


@pytest.fixture
def unguarded(whole_libc: None, bare: Callable[..., None]) -> None:
    """On a kernel that refuses nothing, and with all of libc: attacks come as far as they can."""
    bare("landlock", "seccomp")


def writing(often: str, *, condition: str) -> str:
    """A right program whose `append_kv` writes so often to every descriptor."""
    top = f'{POSIX}#include <stdlib.h>\nstatic char junk[1 << 16] = "<error>";\n'
    writes = f"{_ALL_DESCRIPTORS} {{ ssize_t sent = write(fd, junk, sizeof junk); (void)sent; }}"
    return around("append_kv", f"    if ({condition}) for ({often}) {writes}", top=top)


@pytest.mark.usefixtures("unguarded")
def test_a_program_that_floods_valgrinds_report_earns_no_memory_error() -> None:
    """Natively it is right; under Valgrind it writes without end into each descriptor that it finds."""
    source = writing(";;", condition='getenv("LD_PRELOAD") != NULL && seq_id == 2')
    with quickly(5.0):
        record = graded_text(source, first_case(), second_case(), valgrind=True)
    (rule,) = (rule for rule in record.rules if rule.rule == "memory-error")

    assert (rule.points, rule.passed) == (0, 0)
    said = record.findings[0].message  # by whichever bound comes first on this machine
    assert "is longer than 4 MB" in said or "does not come back" in said


# ---------------------------------------------------------------- records


def test_a_record_of_megabytes_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is said in words."""
    record = expected_records(first_case())[0]
    one, _ = taken_down(monkeypatch, story(0, record + bytes(2_000_000), record))
    comparison = compare(one, lab().model)

    assert comparison.end is End.UNREADABLE
    assert f"takes {len(record) + 2_000_000} bytes to tell" in comparison.unreadable


def test_what_takes_too_long_to_compare_is_said_to_be_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bound of all: only where a program does something else, never with a right one."""
    monkeypatch.setattr(Budget, "empty", True)
    record = graded_text(around("append_kv", "    if (seq_id == 2) return 7;"), first_case(), second_case())
    (finding,) = record.findings

    assert graded_text(right(), first_case()).score == record.max_score
    assert (finding.case, finding.operation, finding.verdict) == ("made/first", 6, Verdict.TIME_LIMIT_EXCEEDED)
    assert "used up the time" in finding.message


# ---------------------------------------------------------------- lines


def test_lines_that_are_found_too_slowly_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice three seconds for each of twenty sections were two minutes."""
    usual, asked = Workspace.run, []

    def slow(work: Workspace, command: list[str], **options: object) -> Completed:
        asked.append(command)
        return usual(work, ["sh", "-c", "while :; do :; done"], **options)  # type: ignore[arg-type]

    with sandbox.workspace() as work:
        program = native().known_good(work)
        monkeypatch.setattr(Workspace, "run", slow)
        lines = [source_lines(work, program, [(address,)]) for address in (0x401000, 0x402000)]

        assert lines == [{(0x401000,): ()}, {(0x402000,): ()}]
        assert len(asked) == 1
        assert work.budget.paid < 2.5
