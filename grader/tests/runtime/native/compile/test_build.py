"""Building a submission: the handout's exact command, and a finding for everything that stands in its way."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Finding, Verdict
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.project import FLAGS
from grader.runtime.protocol import Built, GradingOptions
from grader.system import process
from grader.system.confine.launcher import machine
from grader.system.process import Completed
from grader.system.process_tree import Patience
from grader.system.sandbox import COMPILE_LIMITS, Workspace, workspace
from grader.tests.support.command import ROOT
from grader.tests.support.raising import Raising
from reference.paged_kv.constants import HEADER

RIGHT = (ROOT / "submissions/paged_kv/accepted/visitor_camel_case_allman/llm_memory.c").read_bytes()
INCLUDED = b'#include "llm_memory.h"\n'
COMMAND = "gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb -c llm_memory.c -o llm_memory.o"
"""As the handout has it (Compilation Standard)."""


def built(source: bytes, own_headers: Mapping[str, bytes] | None = None) -> Built:
    """The end of a build of that source."""
    with workspace() as work:
        return lab().runtime.build(work, source, beside=own_headers or {}, optional=Raising())


def findings(source: bytes, own_headers: Mapping[str, bytes] | None = None) -> tuple[Finding, ...]:
    """What is wrong with a source that does not build."""
    result = built(source, own_headers)

    assert result.program is None
    assert result.findings
    assert {finding.verdict for finding in result.findings} == {Verdict.COMPILE_ERROR}
    assert all(finding.message for finding in result.findings)
    return result.findings


@cache
def cases() -> tuple[Case, ...]:
    """A few cases are enough to see whether points are earned."""
    return tuple(case_files.load_folder(lab().cases, lab().grammar, seed=1, pattern="create/*"))


def graded(folder: Path, source: bytes, **others: bytes) -> Record:
    """The record of a folder with that source, and headers named without their dot."""
    (folder / "llm_memory.c").write_bytes(source)
    for name, content in others.items():
        (folder / f"{name}.h").write_bytes(content)
    return pipeline.grade(folder, lab(), cases(), GradingOptions(seed=1, memory_checker=False))


def without(name: str) -> bytes:
    """The right program with one of its functions called something else."""
    return RIGHT.replace(name.encode(), b"another_name")


def test_the_handouts_command_is_what_runs_and_what_is_recorded() -> None:
    """Not a flag more or less, in its order."""
    handout = (lab().cases / "handout.md").read_text(encoding="utf-8")
    result = built(RIGHT)

    assert result.program is not None
    assert result.findings == ()
    assert result.command == COMMAND
    assert COMMAND in handout.splitlines()


def test_the_handout_declares_what_the_header_does() -> None:
    """The same structures and calls, line by line; comments and blanks do not matter."""
    header = (ROOT / "reference/paged_kv/llm_memory.h").read_text(encoding="utf-8")
    handout = (lab().cases / "handout.md").read_text(encoding="utf-8")
    shown = "".join(re.findall(r"^```c\n(.*?)^```", handout, re.MULTILINE | re.DOTALL))
    ours, theirs = (re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines() for text in (header, shown))

    declared = [line.strip() for line in ours if line.strip() and not line.startswith("#")]
    assert [line.strip() for line in theirs if line.strip()] == declared


@pytest.mark.parametrize(
    "source",
    [
        RIGHT.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + "/* 这是注释 – Grüße */\n".encode() + RIGHT.rstrip(),
        b'#define malloc_count 1\n#include <assert.h>\n_Static_assert(sizeof(int) == 4, "int");\n'
        + (b"/*" + b"x" * 900_000 + b"*/\n" + RIGHT)
        + b"\nstatic inline int mine(int x)\n{\n    __typeof__(x) y = x;\n    return y;\n}\n",
    ],
    ids=["CRLF", "BOM, UTF-8, no final newline", "C11, long, typeof"],
)
def test_how_a_file_is_written_costs_nothing(tmp_path: Path, source: bytes) -> None:
    """Line ends, byte order marks, comments in any language, standard C of 2011."""
    record = graded(tmp_path, source)

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


def test_a_macro_is_named_with_its_line() -> None:
    """What gcc means is written there, not where the macro is used."""
    lines = (b"#define LESS(a, b) ((a) < (b))", b"int f(int a, unsigned b) { return LESS(a, b); }", b"")
    (first,) = findings(INCLUDED + b"\n".join(lines) + RIGHT)

    assert [str(place) for place in first.source] == ["llm_memory.c:3:35", "llm_memory.c:2"]
    assert first.field.endswith("What is meant is written in the macro LESS, at llm_memory.c:2.")


def test_missing_and_misspelt_functions() -> None:
    """Each has a finding; a name that comes near is offered."""
    missing = findings(without("llm_destroy"))
    misspelt = findings(RIGHT.replace(b"fork_sequence", b"fork_sequnce"))
    nothing = findings(INCLUDED + b"extern int nothing;\n")

    assert [finding.message for finding in missing] == ["llm_memory.c does not define llm_destroy"]
    assert misspelt[0].message.startswith("llm_memory.c does not define fork_sequence; is your fork_sequnce meant")
    assert len(nothing) == 6


@pytest.mark.parametrize("count", [1, 20, 21, 62, 5000])
def test_the_first_errors_are_shown_however_many_there_are(count: int) -> None:
    """Of the 21st on gcc 12 writes nothing for machines; of many it writes more than is read."""
    source = "".join(f'_Static_assert(0, "y{number}");\n' for number in range(count))
    first = built(source.encode()).findings[0]

    assert "y0" in first.message
    assert (first.source[0].line, first.kind) == (1, "compiler")


def test_a_header_of_ones_own_that_brings_macros(tmp_path: Path) -> None:
    """The finding names what only that header declares, and gcc's own words stand after it."""
    own = HEADER.read_bytes() + b"#define MY_STEP 3\n#define UNUSED_ONE 4\n"
    record = graded(tmp_path, RIGHT + b"\nint my_step(void);\nint my_step(void) { return MY_STEP; }\n", llm_memory=own)

    first = record.findings[0]
    assert first.kind == "own-header"
    assert first.field == "MY_STEP"
    assert "Only your header declares: MY_STEP." in first.message
    assert "llm_memory.c" in first.message
    assert "MY_STEP" in record.findings[1].message


def test_a_header_of_ones_own_never_replaces_ours(tmp_path: Path) -> None:
    """Constants of the student's choice change nothing, nor does one that is broken."""
    for own in (b"#define BLOCK_SIZE 128\n", b"#error mine\n", b"\x00\xff"):
        record = graded(tmp_path, RIGHT, llm_memory=own)

        assert record.verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("source", [b"\n", b"   ", bytes(range(256)) * 50, RIGHT.decode().encode("utf-16"), b"\0" * 9])
def test_what_is_no_c_at_all_is_a_finding(source: bytes) -> None:
    """Empty, binary, UTF-16 as some editors write it: bounded, and valid text."""
    for finding in findings(source):
        assert len(finding.message) < 3000
        assert finding.message.encode("utf-8")
        assert all(place.column >= 0 for place in finding.source)


def test_the_driver_and_the_harness_compile_cleanly(tmp_path: Path) -> None:
    """The handout's link line must work with them, under its own flags."""
    harness = ROOT / "grader" / "runtime" / "native" / "harness"
    filters = ROOT / "grader" / "system" / "confine"
    sources = [*harness.glob("*.c"), *(ROOT / "grader" / "labs").glob("*/driver.c")]
    for path in sources:
        includes = [f"-I{place}" for place in (harness, path.parent, HEADER.parent, filters)]
        done = process.run(
            ["gcc", *FLAGS, *includes, "-c", str(path), "-o", "part.o"],
            cwd=tmp_path,
            limits=Patience(wall_seconds=60),
            environment={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

        assert (done.exit_code, done.stdout, done.stderr) == (0, b"", b""), path
    assert len(sources) >= 2


@pytest.mark.usefixtures("steady")
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "bomb",
    [
        b"#define A0 int x;\n"
        + b"".join(b"#define A%d A%d A%d A%d A%d\n" % (i, *[i - 1] * 4) for i in range(1, 16))
        + b"A15\n",
        b'#include "/dev/zero"\n',
        b'__asm__(".fill 100000000000,1,0");\n',
    ],
    ids=["macros", "endless file", "huge object"],
)
def test_a_bomb_is_stopped_in_time_and_tried_once(tmp_path: Path, bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc is given one second here, and is not asked again for what it could not do."""
    monkeypatch.setattr(
        "grader.runtime.native.compile.toolchain.COMPILE_LIMITS",
        replace(COMPILE_LIMITS, wall_seconds=20, cpu_seconds=1),
    )
    run, dear = Workspace.run, list[Completed]()

    def noted(*arguments: Any, **options: Any) -> Completed:
        done = run(*arguments, **options)
        if done.cpu_seconds > 0.8:
            dear.append(done)
        return done

    monkeypatch.setattr(Workspace, "run", noted)
    record = graded(tmp_path, bomb + RIGHT)

    refused = b"/dev/zero" in bomb and machine().landlock  # it may not be read
    assert record.verdict is Verdict.COMPILE_ERROR
    assert [finding.kind for finding in record.findings] == ["compiler" if refused else "compiler-stopped"]
    assert record.would_score is None
    assert len(dear) == (0 if refused else 1)


@pytest.mark.parametrize("name", ["/etc/passwd", "/etc/shadow", "llm_memory.c", "/", "../../etc/passwd", "driver.c"])
def test_including_what_is_no_header_is_a_finding(name: str) -> None:
    """Files of the machine, itself, a folder; nothing of theirs is quoted."""
    for finding in findings(f'#include "{name}"\n'.encode() + RIGHT):
        assert finding.kind == "compiler"
        assert "root:" not in finding.message
