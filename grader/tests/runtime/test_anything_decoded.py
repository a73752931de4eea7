"""Whatever a program puts into a report, its decoder ignores that report at most: nothing raises.

The bodies are random words that some decoder might stumble over, from fixed seeds.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from grader.core.picture import Drawing
from grader.core.verdict import SourceLine
from grader.judge.case_findings import case_findings, unplaced
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS
from grader.report.document import View
from grader.result.draw_states import pictures
from grader.runtime.comparison import Comparison
from grader.runtime.native import advice, lines, symptoms
from grader.runtime.native.native_played import NativePlayed, NativeReplayed, Remark, native_played
from grader.runtime.native.project import NativeProgram
from grader.runtime.native.replay import FrameKind
from grader.runtime.native.runtime import NativeObservations
from grader.runtime.native.symbolize import Lines, lines_at
from grader.runtime.native.symptoms import heap_use, stacks_of
from grader.runtime.native.valgrind.reports import read
from grader.runtime.protocol import Built, Named, Place
from grader.system import sandbox
from grader.system.process import Command, Completed
from grader.system.sandbox import Workspace
from grader.tests.runtime.native.test_replay import TOKEN, frame, story, taken_down
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.hostile_input import WELL, course, mark
from grader.tests.support.programs import (
    by_hand,
    expected_records,
    first_case,
    judged,
    native,
    observed,
    second_case,
    told,
)
from grader.tests.support.raising import Raising

_SEEDS = range(40)
_EVENT = struct.Struct("<5i4x4Qq")
_PROGRAM = NativeProgram(content=b"", source_name="llm_memory.c")
_LENGTHS = (0, 1, 4, 8, 12, 16, 20, 24, 40, 72, 80, 272, 400)
_ODD = (0, 1, 2, 3, 5, 7, 11, 64, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 2, 2**64 - 1)
_RECORD_WORDS = len(expected_records(first_case())[1]) // 4


def any_body(chance: random.Random) -> bytes:
    """A body of random length and words, which may be 32 bits wide."""
    size, pattern = chance.choice(((8, "<Q"), (4, "<I")))
    words = [chance.choice((*_ODD, chance.randrange(300))) % (1 << 8 * size) for _ in range(100)]
    return b"".join(struct.pack(pattern, word) for word in words)[: chance.choice(_LENGTHS)]


def any_event(chance: random.Random) -> bytes:
    """The body of a BLOCK frame with odd numbers."""
    small = [chance.choice((-(2**31), -2, -1, 0, 1, 3, 6, 7, 9, 2**31 - 1)) for _ in range(4)]
    large = [chance.choice(_ODD) for _ in range(4)]
    return _EVENT.pack(chance.randrange(10), *small, *large, chance.choice((-(2**63), -1, 4, 2**63 - 1)))


def any_frame(chance: random.Random, kind: int) -> bytes:
    """A frame of this kind for the first case, with odd counts and an odd body."""
    counts = [chance.choice(_ODD) % (1 << 32) if chance.randrange(2) else 0 for _ in range(5)]
    operation = chance.choice((-1, 0, 1, 2, 3, 4, 5, 6, 7, -(2**31), 2**31 - 1))
    body = any_event(chance) if kind == FrameKind.BLOCK and chance.randrange(3) else any_body(chance)
    return struct.pack("<QIIiiIIIIII", TOKEN, kind, len(body), 0, operation, 1, *counts) + body


def any_lines(stacks: Iterable[tuple[int, ...]]) -> Lines:
    """Lines on most of these stacks, also such as only `#line` makes."""
    return {stack: tuple(_line(address) for address in stack if address % 5) for stack in stacks}


def _line(address: int) -> SourceLine:
    return SourceLine(file="llm_memory.c", line=(0, 1, 40, 9_999_999)[address % 4], function=f"f{address % 3}")


@pytest.mark.parametrize("kind", FrameKind)
def test_frames_of_every_kind(monkeypatch: pytest.MonkeyPatch, kind: FrameKind) -> None:
    """Among the frames of an honest case: compared, joined with what a second run reports, diagnosed and scored."""
    honest = [frame(FrameKind.STEP, 0, number, record) for number, record in enumerate(expected_records(first_case()))]
    for seed in _SEEDS:
        chance = random.Random(seed)
        frames = list(honest)
        for _ in range(chance.randrange(1, 6)):
            frames.insert(chance.randrange(len(frames) + 1), any_frame(chance, kind))
        stream = frame(FrameKind.BEGIN, 0, -1) + b"".join(frames) + story(1, *expected_records(second_case()))
        played = taken_down(monkeypatch, stream)
        comparisons = [compare(one, lab().model) for one in played]
        natively = [native_played(one) for one in comparisons]
        uses = [
            heap_use(one, symptoms._completed_events(own, own)) for one, own in zip(comparisons, natively, strict=True)
        ]
        seen = NativeObservations(
            comparisons=tuple(comparisons), uses=uses, lines=any_lines(stacks_of(comparisons, uses))
        )
        found, _ = case_findings(seen.completed(), lab(), optional=Raising())

        assert judged(*played)[1]
        assert [one.comparison.case for one in found] == [first_case(), second_case()]


@cache
def wrong() -> tuple[Comparison, ...]:
    """A block is missing from a table, a reply is wrong, a call crashes."""
    steps = told(expected_records(first_case())[:2])
    crash = NativePlayed(first_case(), steps=steps, ended=True, status=11)
    cases = (by_hand(first_case(), (1, 34, -1)), by_hand(first_case(), (1, 0, 2)), crash)
    return tuple(compare(one, lab().model) for one in cases)


def found_lines(monkeypatch: pytest.MonkeyPatch, *bodies: bytes) -> dict[Place, Named]:
    """What is found where the build for lines reports these bodies, one for each case of `wrong`."""
    suspected = unplaced(case_findings(observed(*wrong()), lab(), optional=Raising())[0], range(3))
    natively = [one.played for one in wrong() if isinstance(one.played, NativePlayed)]
    played = [replace(one, lines=body) for one, body in zip(natively, bodies, strict=True)]
    assert len(suspected) == len(played)
    replayed = NativeReplayed(played=tuple(played), output=b"", cpu_seconds=0.0)
    monkeypatch.setattr(lines, "_selected_faults", lambda faults: faults)
    monkeypatch.setattr(lines, "replay", lambda *_, **__: replayed)
    monkeypatch.setattr(lines, "source_lines", lambda _work, _program, stacks: any_lines(stacks))
    with sandbox.workspace() as work:
        named, _ = lines.find_lines(
            work, suspected, driver=native().driver, build=lambda _: Built(program=_PROGRAM), source=b"return 0;\n" * 50
        )
    return named


def report_of_lines(*pairs: tuple[int, int], path: Sequence[int] = (), length: int | None = None) -> bytes:
    """The body of a LINES frame: a path, then numbers of words with the stores to them."""
    words = [len(path) if length is None else length, *path, *(number for pair in pairs for number in pair)]
    return struct.pack(f"<{len(words)}Q", *words)


def test_paths_and_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bodies, and reports of a path and stores with odd addresses."""
    for seed in _SEEDS:
        chance = random.Random(seed)
        pairs = [(chance.randrange(_RECORD_WORDS), chance.choice(_ODD)) for _ in range(chance.randrange(4))]
        path = [chance.choice(_ODD) for _ in range(chance.randrange(9))]
        bodies = [any_body(chance), report_of_lines(*pairs, path=path), report_of_lines(path=path)]
        chance.shuffle(bodies)

        assert len(found_lines(monkeypatch, *bodies)) <= len(wrong())


_FITS = report_of_lines((0, 6), (34, 7), path=(6, 7))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        _FITS[:-1],
        _FITS[:-8],
        report_of_lines((2**40, 7)),
        report_of_lines((2**64 - 1, 7)),
        report_of_lines((_RECORD_WORDS, 7)),
        report_of_lines(path=(6,), length=2),
        report_of_lines(path=(6,), length=2**64 - 1),
        report_of_lines(path=[6] * 513),
    ],
    ids=["empty", "no word", "half", "far", "largest", "next", "longer", "endless", "too long"],
)
def test_a_report_of_lines_that_the_harness_does_not_send_is_ignored(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """A word that the record does not have ended in a `struct.error`, and the submission had no score."""
    assert found_lines(monkeypatch, _FITS, _FITS, report_of_lines()).keys() == {(0, 1), (1, 1), (2, 2)}
    assert found_lines(monkeypatch, body, body, body).keys() == set()


def test_undefined_behaviour() -> None:
    """Odd kinds, lines and columns, and names that are none."""
    names = (b"llm_memory.c", b"", b"\xff\0/llm_memory.c", b"a" * 400)
    for seed in _SEEDS:
        chance = random.Random(seed)
        remarks = [Remark(chance.choice((-1, 0, 6, 7)), any_body(chance) + chance.choice(names)) for _ in range(9)]
        played = NativePlayed(first_case(), remarks=remarks)
        given = tuple(advice._undefined([played], "llm_memory.c"))
        record = record_of(outcome(first_case().name, passed=True), advice=given)

        assert all(report(record, View(instructor=True)) for report in FORMATS.values())


class Answering(Workspace):
    """A workspace in which addr2line answers whatever a test wants; on a known-good program it works."""

    __slots__ = ()
    answer: bytes = b""

    def run(self, command: Sequence[str] | Command, **_: object) -> Completed:
        """Answer, without any program."""
        assert not callable(command)
        answer = b"0x0\n??\n??:0\n" if "/bin/sh" in command else self.answer
        return Completed(exit_code=0, signal=None, timed_out=False, cpu_seconds=0.0, stdout=answer, channels=())


def test_answers_of_addr2line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debug information can spell any function and any file: lines of ours, or none."""
    parts = (b"0x0", b"0x12", b"0x" + b"f" * 400, b"??", b"??:0", b"f", b"x/llm_memory.c:7", b"llm_memory.c:0x7")
    more = (b"llm_memory.c:" + b"9" * 5000, b"llm_memory.c:3 (discriminator 2)", b"\xff\xfe\0\x85", b"", b"\xd9\xa1")
    with sandbox.workspace() as work:
        answering = Answering(folder=work.folder, user=work.user, budget=work.budget)
        for seed in _SEEDS:
            chance = random.Random(seed)
            answer = [chance.choice(parts + more) for _ in range(chance.randrange(30))]
            monkeypatch.setattr(Answering, "answer", b"\n".join([b"0x0", *answer]))
            found = lines_at(answering, "program", [0], "llm_memory.c")

            assert all(0 <= line.line < 10**7 for line in found.get(0, ()))


def test_messages_and_errors_of_valgrind() -> None:
    """A program can write into the document: odd elements, numbers and places."""
    numbers = (
        b"7",
        b"-1",
        b"0x401000",
        b"9" * 5000,
        b"",
        b"\xd9\xa1",
        b"0x" + b"f" * 17,
        b"1_0",
        b" 7 ",
        b"1e9",
        b"9999999999",
    )
    kinds = (b"InvalidRead", b"UninitValue", b"Leak_DefinitelyLost", b"", b"\xff", b"&#0;", b"&x;")
    for seed in _SEEDS:
        chance = random.Random(seed)
        pieces = []
        for _ in range(12):
            ip, line, address = (chance.choice(numbers) for _ in range(3))
            kind = chance.choice(kinds)
            place = b"<frame><ip>%b</ip><fn>f</fn><file>llm_memory.c</file><line>%b</line></frame>" % (ip, line)
            stack = b"<stack>%b</stack>" % (place * chance.randrange(3))
            beside = b"<auxwhat>Address 0x%b is free'd</auxwhat>" % address
            pieces.append(b"<error><kind>%b</kind>%b%b%b</error>" % (kind, stack, beside, stack))
            word = chance.choice(("errors", "leaks", "forbidden", "hang"))
            pieces.append(mark(chance.choice((2, 4, *_ODD)), chance.choice((0, 1, 2, 3, *_ODD)), word=word))
        document = b"".join(chance.sample(pieces, len(pieces))) + WELL
        found = read(document, course(), "llm_memory.c", any_lines, optional=Raising())

        assert {error.case for error in found.errors} <= {4, 2}
        assert all(line.line < 10**7 for error in found.errors for line in (*error.lines, *error.auxiliary))


def test_states_in_pictures() -> None:
    """Records with odd words: drawn, or left out."""
    honest = expected_records(first_case())
    for seed in _SEEDS:
        chance = random.Random(seed)
        edits = [
            (chance.randrange(len(honest)), chance.randrange(80), chance.choice((-1, 0, 1, 5, 2**31 - 1, -(2**31))))
            for _ in range(chance.randrange(1, 4))
        ]
        comparison = compare(by_hand(first_case(), *edits), lab().model)
        record = record_of(outcome(first_case().name))

        assert len(pictures(record, [comparison], lab(), Drawing.ALL)) == 1
