"""Replay: what the driver reports is what the reference says, and a stream is believed no further than it goes."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.core.case import Case
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import NativePlayed, NativeReplayed
from grader.runtime.native.project import NativeProgram
from grader.runtime.native.replay import FrameKind, replay
from grader.system.process import Command, Completed
from grader.system.sandbox import NO_VARIABLES, Limits, Workspace
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import attempted, expected_records, first_case, native, second_case

_END = struct.pack("<iiq", 0, 0, 1000)
_BLOCK = struct.pack("<iiiiQQQ", 3, 0, 0, 0, 8, 0x1000, 0x2000)
_FAULT = struct.pack("<iiQ2Q", 11, 1, 0, 0x1000, 0x2000)


class FakeWork(Workspace):
    """A workspace in which a program reports whatever a test wants."""

    __slots__ = ()
    reports: bytes = b""
    token: int = 0
    exit_code: int = 0

    def add(self, name: str, content: bytes, mode: int = 0o644) -> Path:  # noqa: ARG002 - the face of a workspace
        """Nothing is put anywhere."""
        return Path("/dev/null")

    def run(
        self,
        command: Iterable[str] | Command,  # noqa: ARG002
        *,
        limits: Limits,  # noqa: ARG002
        feeds: Iterable[bytes] = (),  # noqa: ARG002
        channels: int = 0,  # noqa: ARG002
        variables: Mapping[str, str] = NO_VARIABLES,  # noqa: ARG002
    ) -> Completed:
        """Answer with the reports, without any program."""
        return Completed(
            exit_code=self.exit_code, signal=None, timed_out=False, cpu_seconds=0.0, channels=(self.reports,)
        )


def taken_down(monkeypatch: pytest.MonkeyPatch, reports: bytes, *, exit_code: int = 0) -> list[NativePlayed]:
    """What `replay` makes of these reports, for two cases."""
    monkeypatch.setattr(FakeWork, "reports", reports)
    monkeypatch.setattr(FakeWork, "exit_code", exit_code)
    monkeypatch.setattr(secrets, "randbits", lambda _: TOKEN)
    work = FakeWork(folder=Path("/nonexistent"), user=None)
    program = NativeProgram(content=b"", source_name="llm_memory.c")
    return list(_replayed(work, program, (first_case(), second_case())).played)


def _replayed(work: Workspace, program: NativeProgram, cases: tuple[Case, ...]) -> NativeReplayed:
    return replay(work, program, cases, driver=native().driver)


TOKEN = 0x1122334455667788


def frame(kind: int, case: int, operation: int = 0, body: bytes = b"", *, length: int = -1) -> bytes:
    """One frame as the driver sends it; `length` may lie."""
    size = len(body) if length < 0 else length
    return struct.pack("<QIIiiIIIIII", TOKEN, kind, size, case, operation, 1, 0, 0, 0, 0, 0) + body


def story(case: int, *records: bytes) -> bytes:
    """An honest case that came to its end."""
    steps = [frame(FrameKind.STEP, case, number, record) for number, record in enumerate(records)]
    return b"".join([frame(FrameKind.BEGIN, case, -1), *steps, frame(FrameKind.END, case, -1, _END)])


def records_of(one: NativePlayed) -> list[bytes]:
    """The records of a case that was taken down."""
    return [step.record for step in one.steps]


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of the lab."""
    chosen = lab()
    return tuple(case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed))


@pytest.mark.parametrize("sample", ["terse_no_final_newline", "chinese_comments_roomy_tables"])
def test_the_record_after_every_operation_is_the_references(sample: str) -> None:
    """Byte by byte, in all cases: driver and reference know the same layout, magic words and structures."""
    source = (SAMPLES / "accepted" / sample / "llm_memory.c").read_bytes()
    attempt = attempted(source, *all_cases())

    for one in attempt.replayed.played:
        assert isinstance(one, NativePlayed)
        expected = expected_records(one.case)
        wrong = [
            number for number, (want, step) in enumerate(zip(expected, one.steps, strict=True)) if want != step.record
        ]
        assert (one.case.name, wrong) == (one.case.name, [])
        assert (one.ended, one.hung, one.fault, one.left, one.misfit) == (True, False, None, None, False)


def test_a_stream_may_stop_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut at every byte: what came whole before the cut counts, nothing is invented."""
    stream = story(0, b"aaaa", b"bbbb") + story(1, b"cccc")
    whole = taken_down(monkeypatch, stream)
    for end in range(len(stream)):
        cut = taken_down(monkeypatch, stream[:end])
        for one, full in zip(cut, whole, strict=True):
            assert records_of(one) == records_of(full)[: len(one.steps)]
        assert cut[1].steps == [] or cut[0].ended


@pytest.mark.parametrize("kind", list(FrameKind), ids=[kind.name for kind in FrameKind])
@pytest.mark.parametrize(
    "body",
    [b"", b"\0", _END[:-1], _END + b"\0", _BLOCK, _BLOCK[:-1], _FAULT[:-1], b"\xff" * 40, b"\xff" * 1000],
    ids=["none", "one", "END-1", "END+1", "BLOCK", "BLOCK-1", "FAULT-1", "forty", "thousand"],
)
def test_forged_frames_with_wrong_bodies_never_raise(
    monkeypatch: pytest.MonkeyPatch, kind: FrameKind, body: bytes
) -> None:
    """Whoever finds the token may write any frame; the next case does not notice."""
    stream = (
        frame(FrameKind.BEGIN, 0, -1) + frame(kind, 0, 0, body) + frame(FrameKind.END, 0, -1, _END) + story(1, b"c")
    )
    _, second = taken_down(monkeypatch, stream)

    assert records_of(second) == [b"c"]
    assert second.ended


def test_a_later_case_cannot_rewrite_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames with another case's number are no part of that case, whatever they say."""
    forged = frame(FrameKind.BEGIN, 0, -1) + frame(FrameKind.STEP, 0, 0, b"forged") + frame(FrameKind.END, 0, -1, _END)
    stream = story(0, b"a", b"b") + frame(FrameKind.BEGIN, 1, -1) + forged + frame(FrameKind.STEP, 1, 0, b"c")
    first, second = taken_down(monkeypatch, stream + frame(FrameKind.END, 1, -1, _END))

    assert records_of(first) == [b"a", b"b"]
    assert records_of(second) == [b"c"]


def test_an_earlier_case_cannot_write_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said about a case before it began is forgotten when it begins."""
    forged = frame(FrameKind.STEP, 1, 0, b"forged") + frame(FrameKind.END, 1, -1, _END)
    stream = frame(FrameKind.BEGIN, 0, -1) + forged + frame(FrameKind.END, 0, -1, _END)
    _, crashed = taken_down(monkeypatch, stream + frame(FrameKind.BEGIN, 1, -1) + frame(FrameKind.FAULT, 1, 0, _FAULT))

    assert records_of(crashed) == []
    assert not crashed.ended
    assert crashed.fault is not None
    assert crashed.fault.signal == 11
