"""However much a file makes gcc write, and whatever it forges of it, its grading is short and ends with a verdict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.core.errors import OptionalStage
from grader.core.verdict import Verdict
from grader.runtime.native.compile import diagnostics
from grader.system.process import Completed
from grader.system.sandbox import Workspace
from grader.tests.support.command import ROOT
from grader.tests.support.programs import right, seconds_here
from grader.tests.support.scanned import CONSTRUCTOR, assembly, below, graded

_MOST_SECONDS, _MOST_BYTES = 10.0, 500_000_000
_MEASURED = """import resource, sys
from pathlib import Path
from grader.assignment import case_files
from grader import pipeline
from grader.runtime.protocol import GradingOptions
from grader.labs.paged_kv.lab import lab
cases = case_files.load_folder(lab().cases, lab().grammar, seed=1, pattern="create/*")
record = pipeline.grade(Path(sys.argv[1]), lab(), cases, GradingOptions(seed=1))
print(record.verdict, record.score, *{finding.message for finding in record.findings}, sep="|")
sums = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
own = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])  # ru_maxrss has our parent's too
print(sum(one.ru_utime + one.ru_stime for one in sums), (own + sums[1].ru_maxrss) << 10)
"""


def measured(folder: Path, source: str) -> tuple[list[str], float, int]:
    """The verdict, score and messages of this source, the CPU time, and the grader's and its largest child's memory."""
    (folder / "llm_memory.c").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-c", _MEASURED, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said, figures = done.stdout.strip().rsplit("\n", 1)
    seconds, size = figures.split()
    return said.split("|"), float(seconds), int(size)


def each(count: int, *lines: str) -> list[str]:
    """Assembly that is repeated, with another number in the place of @ each time."""
    return [".macro m", *(line.replace("@", "\\\\@") for line in lines), ".endm", f".rept {count}", "m", ".endr"]


BELOW = {
    "sections": assembly(*each(900, '.section .text.a@,\\"ax\\"', "nop")),
    "symbols": assembly(*each(19_000, ".globl append_k@", "append_k@:")),
    "calls that fail": "#include <stdio.h>\n" + assembly(".rept 300000", "call fopen", ".endr"),
    "lines": right() + "\n" * 900_000,
    "zeros": below("char zeros[1000U << 20];"),
    "a long name": assembly(f"{'x' * 800_000}: nop"),
    "one more pointer": assembly(".data", ".rept 500000", ".quad here", ".endr", "here: nop"),
}
"""Programs that do nothing wrong, just below a bound."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", BELOW)
def test_what_lies_below_the_bounds_is_graded(name: str, tmp_path: Path) -> None:
    """In the same time and room."""
    (verdict, *_), seconds, size = measured(tmp_path, BELOW[name])

    assert verdict == "accepted"
    assert seconds < seconds_here(_MOST_SECONDS)
    assert size < _MOST_BYTES


def test_what_cannot_be_decompressed_cannot_be_linked() -> None:
    """That is the file's own fault."""
    record = graded(assembly('.section .debug_x,\\"0x800\\"', ".quad 1,99,1,77"))

    assert (record.verdict, [finding.kind for finding in record.findings]) == (Verdict.COMPILE_ERROR, ["linker"])


def test_a_compressed_section_without_bytes_is_no_error_of_ours() -> None:
    """gcc and the assembler accept such a section."""
    record = graded(assembly('.section .debug_x,\\"0x800\\",@nobits', ".zero 100"))

    assert record.verdict in (Verdict.COMPILE_ERROR, Verdict.REJECTED)


@pytest.mark.parametrize("script", ["exit 1", "echo garbage"])
def test_a_failing_addr2line_is_ours_only_where_it_fails_for_a_known_good_program(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails by forged debug lines alone leaves the lines unknown."""
    usual = Workspace.run

    def failing(work: Workspace, command: list[str], **options: object) -> Completed:
        if command[0] == "addr2line" and ("/bin/sh" not in command or known_good_too):
            command = ["sh", "-c", script]
        return usual(work, command, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Workspace, "run", failing)
    known_good_too = False
    (finding,) = graded(CONSTRUCTOR).findings
    assert finding.field == "hook"

    known_good_too = True
    record = graded(CONSTRUCTOR)
    (failure,) = record.failed_stages
    assert [finding.field for finding in record.findings] == ["hook"]
    assert (failure.stage, "addr2line failed" in failure.error) == (OptionalStage.LINES, True)


_SARIF = (
    '{"runs":[{"results":[{"ruleId":"error","level":"error","message":{"text":"y"},"locations":[{"physicalLocation":'
    '{"artifactLocation":{"uri":"a.c"},"region":{"startLine":LINE,"startColumn":1}}}]}]}]}'
)


@pytest.mark.parametrize("line", ['"x"', "1e999", "null", "[]", "-5", "9" * 4000, "9" * 5000, "true"])
def test_a_forged_message_of_gcc_is_a_message_at_most(line: str) -> None:
    """The assembler repeats what it is told, on lines of their own."""
    for found in diagnostics.parse(_SARIF.replace("LINE", line).encode()):
        assert 0 <= found.line <= 10_000_000
        assert found.column in (0, 1)


def _hard() -> Iterator[bytes]:
    yield b"[\n" * 500_000
    yield b"{\n" * 500_000
    yield b'[{"kind":"error","message":"a","children":' * 400 + b"1" + b"}]" * 400
    yield b'[{"kind":"error","message":"a"}]\n' * 30_000


@pytest.mark.parametrize("number", range(4))
def test_messages_of_any_size_and_nesting_are_read(number: int) -> None:
    """Brackets, nesting, and more messages than anybody reads."""
    text = list(_hard())[number]
    found = diagnostics.parse(text)

    assert len(found) <= 1000
