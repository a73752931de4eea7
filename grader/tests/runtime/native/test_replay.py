"""Replay: what the driver reports is what the reference says, and a stream is believed no further than it goes."""

from __future__ import annotations

import itertools
import secrets
import signal
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from grader.assignment import case_files
from grader.core.case import Case
from grader.core.errors import DriverError
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.native_played import Fault, NativePlayed, NativeReplayed
from grader.runtime.native.project import NativeProgram
from grader.runtime.native.replay import FrameKind, plan, replay
from grader.system import sandbox
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

    assert attempt.replayed is not None
    for one in attempt.replayed.played:
        assert isinstance(one, NativePlayed)
        expected = expected_records(one.case)
        wrong = [
            number for number, (want, step) in enumerate(zip(expected, one.steps, strict=True)) if want != step.record
        ]
        assert (one.case.name, wrong) == (one.case.name, [])
        assert (one.ended, one.hung, one.fault, one.left, one.misfit) == (True, False, None, None, False)


def test_an_honest_stream_is_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records in order, the end with its status; the second case is none the worse for the first."""
    first, second = taken_down(monkeypatch, story(0, b"a", b"bb") + story(1, b"c") + frame(FrameKind.DONE, 1))

    assert records_of(first) == [b"a", b"bb"]
    assert records_of(second) == [b"c"]
    assert first.ended
    assert first.cpu_seconds == 0.001


def test_garbage_between_frames_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that found the descriptor and writes to it loses nobody's records."""
    honest = [
        frame(FrameKind.BEGIN, 0, -1),
        frame(FrameKind.STEP, 0, 0, b"a"),
        frame(FrameKind.STEP, 0, 1, b"b"),
        frame(FrameKind.END, 0, -1, _END),
    ]
    garbage = b"garbage" + TOKEN.to_bytes(8, "little")[:7] + b"\0\xff"
    first, second = taken_down(monkeypatch, garbage.join([b"", *honest, story(1, b"c"), b""]))

    assert records_of(first) == [b"a", b"b"]
    assert records_of(second) == [b"c"]
    assert first.ended


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


@pytest.mark.parametrize("case", [-1, -(2**31), 2, 2**31 - 1])
def test_a_case_that_does_not_exist_is_ignored(monkeypatch: pytest.MonkeyPatch, case: int) -> None:
    """No forged number leads outside the list."""
    stream = (
        frame(FrameKind.BEGIN, 0, -1)
        + frame(FrameKind.STEP, case, 0, b"x")
        + frame(FrameKind.END, 0, -1, _END)
        + story(1, b"c")
    )
    first, second = taken_down(monkeypatch, stream)

    assert records_of(first) == []
    assert records_of(second) == [b"c"]


@pytest.mark.parametrize("length", [1, 100, 2**31, 2**32 - 1])
def test_a_lying_length_costs_only_its_own_case(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """A frame that claims to be longer than it is does not eat the reports of the case behind it."""
    stream = (
        frame(FrameKind.BEGIN, 0, -1)
        + frame(FrameKind.STEP, 0, 0, b"", length=length)
        + frame(FrameKind.END, 0, -1, _END)
    )
    _, second = taken_down(monkeypatch, stream + story(1, b"c"))

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


def test_steps_count_only_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step twice, a step too far on, a step before the start: none of them takes another's place."""
    numbers = [(0, b"a"), (0, b"again"), (2, b"too far"), (-1, b"before"), (1, b"b")]
    steps = [frame(FrameKind.STEP, 0, number, record) for number, record in numbers]
    first, _ = taken_down(
        monkeypatch, b"".join([frame(FrameKind.BEGIN, 0, -1), *steps, frame(FrameKind.END, 0, -1, _END)])
    )

    assert records_of(first) == [b"a", b"b"]


def test_a_second_attempt_replaces_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that ran into its limit is run again; only the second run counts."""
    hung = frame(FrameKind.BEGIN, 0, -1) + frame(FrameKind.STEP, 0, 0, b"a") + frame(FrameKind.FAULT, 0, 1, _FAULT)
    hung += frame(FrameKind.END, 0, -1, struct.pack("<iiq", 9, 1, 500_000))
    first, _ = taken_down(monkeypatch, hung + story(0, b"a", b"b"))

    assert (first.hung, first.fault, records_of(first)) == (False, None, [b"a", b"b"])


def test_a_driver_that_cannot_read_its_plan_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the student's: an exception, no finding."""
    with pytest.raises(DriverError):
        taken_down(monkeypatch, b"", exit_code=100)


_PIECES = st.one_of(
    st.binary(max_size=40),
    st.just(TOKEN.to_bytes(8, "little")),
    st.builds(
        frame,
        st.sampled_from([*map(int, FrameKind), 0, 9, 2**32 - 1]),
        st.integers(-2, 3),
        st.integers(-2, 9),
        st.one_of(st.binary(max_size=80), st.sampled_from([_END, _BLOCK, _FAULT])),
        length=st.one_of(st.just(-1), st.integers(0, 200)),
    ),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_PIECES, max_size=12))
def test_no_stream_at_all_raises(monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> None:
    """Frames, tokens and bytes in any order: a list of what was played comes back, one for each case."""
    found = taken_down(monkeypatch, b"".join(pieces))

    assert [one.case for one in found] == [first_case(), second_case()]
    assert all(len(one.steps) <= 12 for one in found)


def test_the_plan_says_every_operation_to_the_driver() -> None:
    """Codes, targets, NULLs and arguments come after the head, eight words for each call."""
    cases = (first_case(), second_case())
    codes = native().driver.codes
    words = plan(cases, (0, 1), token=TOKEN, driver=native().driver)
    calls = list(itertools.chain.from_iterable(case.trace.operations for case in cases))

    assert words.count(TOKEN.to_bytes(8, "little")) == 1
    assert len(words) > 32 * len(calls)
    assert words.endswith(struct.pack("<8i", codes["llm_destroy"], 1, 0, 0, 0, 0, 0, 0))
    assert struct.pack("<8i", codes["append_kv"], 1, 0, 1, 11, 0, 0, 0) in words
    assert struct.pack("<8i", codes["create_sequence"], 1, 0, 7, 20, 0, 0, 0) in words


def test_a_workspace_leaves_nothing_behind() -> None:
    """The private folder goes, with everything in it."""
    with sandbox.workspace() as work:
        folder = work.folder
        work.add("a.txt", b"text")

        assert (folder / "a.txt").read_bytes() == b"text"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("code", "address", "wild"),
    [
        (0x80, 0, True),  # x86-64 names no address that cannot be
        (1, 0xFFA5A5A5A5A5A5A5, True),  # 64-bit Arm does
        (1, 0x00A5A5A5A5A5A5A5, True),
        (1, 0x7FFFA5A5A5A5, False),
        (1, 0xFFFF8A2B0000, False),  # where 64-bit Arm has stack and libraries
        (1, 0xFFFFFFFFFFFFFFFF, False),
        (1, 0, False),
    ],
)
def test_a_pointer_that_was_never_set_is_known_by_its_address(code: int, address: int, *, wild: bool) -> None:
    """On both processors in the same words."""
    fault = Fault(3, signal.SIGSEGV, address, (), code)

    assert fault.is_wild == wild
    assert ("was never set" in fault.words) == wild


def test_where_a_recursion_fills_the_stack_is_chance() -> None:
    """The same calls are named whichever of them met the end of the stack, at the call or behind it."""
    overflows = [(199, *[202] * 31), *[(7, *[10, 20][turn:], *[10, 20] * 14) for turn in range(2)], (199, 202, 205)]
    once, at_first, at_second, crash = (Fault(3, signal.SIGSEGV, 0, stack).place for stack in overflows)

    assert (once, at_first, crash) == ((0, 202), (0, 10, 20), (199, 202, 205))
    assert at_first == at_second
    assert Fault(3, signal.SIGALRM, 0, overflows[0]).place == overflows[0]
