"""The samples that inject something, names that do, and floods: every report stays whole, bounded and readable."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from grader.core.record import Record, to_json
from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS
from grader.report.document import View
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.graded import graded
from grader.tests.support.injected import obeyed
from grader.tests.support.programs import first_case, graded_text, right
from grader.tests.support.readers import READERS

ARRIVES = {
    "printed_lines": (
        r"\x1b[2J\x1b[H\x1b]0;100 of 100 points\x07",
        "=cmd|'",
        "::error file",
        r"\u202edrow",
        r"\xff\xfe",
    ),
    "line_of_a_megabyte": (r"::\x1b[2J,=::\x1b[2J,=",),
    "names_into_stacks": (r"\u202edeppots\u200b", "=cmd|' /C", r"\x0c0xzz\xff", "$dollar", "in append_kv"),
    "name_into_valgrind_xml": (r"search\x1b[8m\x01\xff</fn>", "Invalid read of size 4"),
    "directives": ("::error::forged", "static assertion failed", r"\x1b[2J\x07", "##vso[task.complete]"),
    "identifiers": ("$a_dollar", "expects a matching 'int'", "202Edesrever"),
    "undefined_symbol": (r"\x1b[2J\x07", "::error::forged", "=cmd|' /C calc'!A0"),
    "constructor_name": (r"x'; echo 100 #\x1b[2J\x07</testcase>=1", "is called before main"),
}
"""What each sample tries, as it stands in the report; a sample whose attack does not arrive would show nothing."""

_VIEWS = (View(), View(instructor=True, colour=True, width=70), View(instructor=True, workflow=True))


def sample(name: str) -> Record:
    """The record of an injecting sample."""
    (folder,) = SAMPLES.glob(f"*/hostile_injects_{name}")
    return graded(lab().name, folder)


@pytest.mark.parametrize("name", ARRIVES)
def test_reports_of_injecting_samples_stay_whole(name: str) -> None:
    """Read by real readers, each sample's other formats in other views; what was tried stands there to be read."""
    record = sample(name)
    for number, (format, render) in enumerate(FORMATS.items(), list(ARRIVES).index(name)):  # noqa: A001 - as the option
        for view in _VIEWS if format == "text" else [_VIEWS[number % len(_VIEWS)]]:
            READERS[format](render(record, view), view)
    shown = re.sub(r"\s+", " ", FORMATS["text"](record, View(width=1000, everything=True)))  # one screen has less

    stops = name == "directives" and len(record.findings) == 1  # as gcc 14 does at the first #error
    for words in ARRIVES[name][:1] if stops else ARRIVES[name]:
        assert words.lower() in shown.lower()


@pytest.mark.parametrize("name", ARRIVES)
def test_reports_of_injecting_samples_are_short(name: str) -> None:
    """Bytes and lines: one line of a megabyte is one line of the page."""
    record = sample(name)
    text = FORMATS["text"](record, View(instructor=True))

    assert len(record.output) <= 4000
    assert len(text.splitlines()) < 250
    assert max(map(len, text.splitlines())) <= 100
    assert len(FORMATS["json"](record, View())) < 1_000_000


def test_the_log_of_a_workflow_obeys_no_sample() -> None:
    """Printed by the command itself; outside of a workflow the page has nothing but the report."""
    folder = SAMPLES / "wrong_answer" / "hostile_injects_printed_lines"
    arguments = ("run", folder, "--without-memory-checker", "--all", *FEW)
    said, plainly = (grade(*arguments, variables={"GITHUB_ACTIONS": value}) for value in ("true", ""))

    assert obeyed(said.out) == []
    assert said.out.splitlines()[1:-1] == plainly.out.splitlines()
    assert obeyed(plainly.out) != []


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        (f"#error {'x' * 400_000}\n", "compile_error"),
        ("".join(f"#error {'x' * 50_000} {n}\n" for n in range(15)), "compile_error"),
        (
            "".join(f"__attribute__((constructor)) static void f{n}(void) {{ flood++; }}\n" for n in range(300)),
            "rejected",
        ),
        (f"__attribute__((constructor)) static void {'x' * 60_000}(void) {{ flood++; }}\n", "rejected"),
    ],
    ids=["one long message", "many long messages", "many findings", "a long name"],
)
def test_floods_of_findings_are_bounded(before: str, verdict: str) -> None:
    """However much gcc or the scan has to say, a record is a few kilobytes and a report some pages."""
    record = graded_text(f"extern volatile int flood;\nvolatile int flood;\n{before}" + right(), first_case())

    assert record.verdict == verdict
    assert 0 < len(record.findings) <= 20
    assert len(to_json(record)) < 200_000
    assert len(FORMATS["text"](record, View(instructor=True)).splitlines()) < 1200


def test_a_crowd_of_files_is_named_in_part(tmp_path: Path) -> None:
    """Those that are not graded, and those that nobody can choose from."""
    for number in range(300):
        folder = tmp_path / "deep" / f"{number}"
        folder.mkdir(parents=True)
        (folder / "llm_memory.c").write_bytes(b"int x\n")
    complaint = grade("run", tmp_path)
    (tmp_path / "llm_memory.c").touch()
    notes = json.loads(grade("run", tmp_path, "--format", "json").out)["submission"]["notes"]
    shutil.rmtree(tmp_path / "deep")

    assert len(complaint.err) < 1000
    assert "and 295 more" in complaint.err
    assert [len(notes), notes[-1]] == [6, "not graded: and 295 more"]
