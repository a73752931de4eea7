"""The hostile suite: submissions that forge, read, damage, exhaust and corrupt, graded as a class would be.

Each is an ordinary labelled sample, `submissions/LAB/VERDICT/hostile_NAME`, whose label says by `attack` what it does.
`scripts/test` grades those that cover the lab, `scripts/test --all` all.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from grader.assignment.case_files import select_cases
from grader.core.record import Record
from grader.core.verdict import Verdict, Visibility
from grader.labs.paged_kv.lab import lab
from grader.pipeline import grade
from grader.report import FORMATS
from grader.report.document import View
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import keep
from grader.tests.support.hostile_batch import ATTACKS, LAST, SHARDS, Batch, Hostile, grade_all, suite
from grader.tests.support.listeners import Ears

_MOST_SECONDS_OF_ONE = 10.0
"""What a grading may use in all, whatever the submission does: its budget (grader.system.budget) and a little.

In seconds of a usual machine.
"""
_GOT = "HOSTILE-GOT"
"""A sample prints this before what it could read and should not."""


def test_every_hostile_sample_is_labelled_as_one() -> None:
    """By its name and by the key `attack`, and only these."""
    named = {sample.folder for sample in suite()}
    labelled = {
        path.parent
        for path in SAMPLES.glob("*/*/expect.toml")
        if "attack" in tomllib.loads(path.read_text(encoding="utf-8"))
    }

    assert labelled == named
    assert {sample.name: sample.attack for sample in suite() if sample.attack not in ATTACKS} == {}
    assert [sample.name for sample in suite() if sample.label["verdict"] != sample.verdict] == []


def test_there_are_many_ways_to_attack() -> None:
    """At least sixty, and some of each kind."""
    count = Counter(sample.attack for sample in suite())

    assert count.total() >= 60, count
    assert min(count[attack] for attack in ATTACKS) >= 6, count


def wrong_records(hostile: list[Hostile], batch: Batch) -> Iterator[str]:
    """Each has the verdict of its folder, no point too much, and is told why."""
    for sample, record in zip(hostile, batch.records, strict=False):
        if record.verdict not in sample.honest:
            yield f"{sample.name}: {record.verdict}, not {' or '.join(sample.honest)}"
        most = sample.honest.get(record.verdict, sample.most)
        if record.score is None or record.score > most:
            yield f"{sample.name}: {record.score} points, {most} are honest"
        if record.verdict is Verdict.ACCEPTED and Verdict.ACCEPTED in sample.honest:
            if record.score != record.max_score or record.findings:
                yield f"{sample.name}: {record.score} points, {len(record.findings)} findings"
        elif record.first_cause is None or not record.first_cause.summary:
            yield f"{sample.name}: nobody is told what happened"


def disturbed_others(hostile: list[Hostile], batch: Batch) -> Iterator[str]:
    """The batch comes to its end, and an accepted sample behind it has all points."""
    if len(batch.records) != len(hostile) + 1:
        yield f"{len(batch.records)} records of {len(hostile) + 1}; stderr: {batch.err[-2000:]}"
    elif (batch.records[-1].verdict, batch.records[-1].findings) != (Verdict.ACCEPTED, ()):
        yield f"{LAST.name} after them: {batch.records[-1].verdict}, {batch.records[-1].score}"
    if batch.notes.get("code") != 1 or "Traceback" in batch.err:
        yield f"the grader ended with {batch.notes.get('code')}: {batch.err[-2000:]}"


def told_secrets(_: list[Hostile], batch: Batch) -> Iterator[str]:
    """No canary in what the grader printed nor in any report, and no sample that says that it got something."""
    views = [View(instructor=instructor) for instructor in (False, True)]
    texts = {"stdout": batch.out, "stderr": batch.err}
    for record in batch.records:
        texts |= {
            f"{record.submission.name} as {name}": "".join(render(record, view) for view in views)
            for name, render in FORMATS.items()
        }
    yield from (f"{record.submission.name} got something" for record in batch.records if _GOT in record.output)
    for where, text in texts.items():
        for kind, canary in batch.canaries.items():
            if canary in text:
                yield f"the canary of {kind} is in {where}"


@cache
def secret() -> re.Pattern[str]:
    """The operations that only hidden cases have, and the names of those cases."""
    cases = select_cases(lab(), seed=1).cases
    hidden = [case for case in cases if case.visibility is Visibility.HIDDEN]
    calls = {str(operation) for case in hidden for operation in case.trace.operations}
    public = " ; ".join(str(operation) for case in cases if case not in hidden for operation in case.trace.operations)
    calls = {call for call in calls if not re.search(rf"(?<!\w){re.escape(call)}(?!\w)", public)}
    assert len(calls) > 100
    found = sorted({*calls, *(case.name for case in hidden)})
    heads = groupby(found, key=lambda text: re.split("[ /]", text)[0])  # looked for first: they are a dozen
    tails = (f"{head}(?:{'|'.join(re.escape(text[len(head) :]) for text in same)})" for head, same in heads)
    return re.compile(rf"(?<!\w)(?:{'|'.join(tails)})(?!\w)")


def told_hidden(record: Record, *, instructor: bool = False) -> set[str]:
    """What is said of hidden cases in any report of this submission; `json` is the record itself, for instructors."""
    view = View(instructor=instructor, everything=True)
    formats = (render for name, render in FORMATS.items() if name != "json")
    return {found for render in formats for found in secret().findall(render(record, view))}


def told_hidden_cases(_: list[Hostile], batch: Batch) -> Iterator[str]:
    """No operation of a hidden case, nor its name, in any report that a student gets."""
    for record in batch.records:
        if found := told_hidden(record):
            yield f"{record.submission.name}: {sorted(found)[:5]} of hidden cases"


def traces(_: list[Hostile], batch: Batch) -> Iterator[str]:
    """No file outside the private folders, no process or object afterwards, nothing said or done to those around."""
    yield from (f"{path} appeared, changed or is gone" for path in batch.appeared)
    yield from (f"still lives: {process}" for process in batch.notes.get("survivors", ["nobody looked"]))
    yield from (f"the grader's parent got {name}" for name in batch.notes.get("signals", []))
    yield from (f"changed of {what}" for what in batch.notes.get("changed", []))
    yield from (f"somebody spoke to {where}" for where in batch.heard)
    yield from (f"left behind: {what}" for what in batch.left)


def too_dear(_: list[Hostile], batch: Batch) -> Iterator[str]:
    """None costs more than any may; it has its whole time again when the machine becomes slower."""
    usual = lab().runtime.pace()
    for record in batch.records:
        spent = sum(record.cpu_seconds.values())
        if spent > _MOST_SECONDS_OF_ONE * sum({usual, record.environment.pace}):
            yield f"{record.submission.name}: {spent:.1f} s ({record.cpu_seconds})"


def test_the_decoy_notes_signals_survivors_and_the_end(tmp_path: Path) -> None:
    """Without it the batch below could not fail."""
    command = ["sh", "-c", "kill -USR1 $PPID; setsid sleep 60 & exit 7"]
    subprocess.run([sys.executable, "-m", "grader.tests.support.decoy", str(tmp_path / "notes"), *command], check=True)
    notes = json.loads((tmp_path / "notes").read_text(encoding="utf-8"))

    assert (notes["code"], notes["signals"]) == (7, ["SIGUSR1"])
    assert len(notes["survivors"]) == 1


def test_the_decoy_notes_what_is_changed_of_others(tmp_path: Path) -> None:
    """Of the grader, which is its child, and of itself."""
    change = "import os, resource; os.nice(1); resource.prlimit(os.getppid(), resource.RLIMIT_MSGQUEUE, (4057, 4057))"
    command = [sys.executable, "-c", change]
    subprocess.run([sys.executable, "-m", "grader.tests.support.decoy", str(tmp_path / "notes"), *command], check=True)
    changed = json.loads((tmp_path / "notes").read_text(encoding="utf-8"))["changed"]

    assert ["the grader: {'priority': 1" in one or "its parent" in one for one in changed] == [True, True]
    assert "4057" in changed[1]


def test_instructors_read_what_hidden_cases_ask() -> None:
    """Without it the search for that in students' reports could not fail."""
    folder = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
    chosen = lab()
    record = grade(folder, chosen, select_cases(chosen, seed=1).cases, GradingOptions(seed=1, memory_checker=False))

    assert told_hidden(record, instructor=True)
    assert not told_hidden(record)


def test_the_ears_hear_every_kind_of_socket(tmp_path: Path) -> None:
    """And are still when nobody speaks."""
    with Ears(tmp_path) as ears:
        assert ears.kinds == {"stream", "datagram", "path", "name"}
        assert ears.heard() == []

        for address in (str(tmp_path / "hostile_canary.socket"), "\0hostile_canary"):
            with socket.socket(socket.AF_UNIX) as mouth:
                mouth.connect(address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
            for port in (47_611, 47_612, 47_613):
                mouth.sendto(b"x", ("127.0.0.1", port))
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()

        assert {name.split()[-1] for name in ears.heard()} == ears.kinds


_LOOKS: tuple[Callable[[list[Hostile], Batch], Iterator[str]], ...] = (
    wrong_records,
    disturbed_others,
    told_secrets,
    told_hidden_cases,
    traces,
    too_dear,
)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("attacks", SHARDS, ids=" and ".join)
def test_no_sample_does_harm(attacks: tuple[str, ...], samples_of: Callable[[str], list[Path]]) -> None:
    """One batch of each kind of attack, and everything that must hold of it: see `_LOOKS`."""
    chosen = samples_of(lab().name)
    hostile = [sample for sample in suite() if sample.attack in attacks and sample.folder in chosen]

    assert hostile
    batch = grade_all([sample.folder for sample in hostile])
    if not [*disturbed_others(hostile, batch)]:  # then each record is that of its sample
        for sample, record in zip(hostile, batch.records, strict=False):
            if record.verdict in sample.honest:  # whatever else the others are to see for themselves
                keep(lab().name, sample.folder, replace(record, pictures=()))

    problems = [problem for look in _LOOKS for problem in look(hostile, batch)]

    assert problems == [], "\n".join(problems)
