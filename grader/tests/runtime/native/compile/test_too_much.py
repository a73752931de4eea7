"""However much a file makes gcc write, and whatever it forges of it, its grading is short and ends with a verdict."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.core.optional_stages import OptionalStage
from grader.core.verdict import Verdict
from grader.runtime.native.compile import diagnostics
from grader.system.process import Completed
from grader.system.sandbox import Workspace
from grader.tests.support.command import ROOT
from grader.tests.support.programs import first_case, graded_text, right
from grader.tests.support.scanned import CONSTRUCTOR, ORDER, accepted, assembly, below, graded

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


MUCH = {
    "sections of code": (assembly(*each(4000, '.section .text.a@,\\"ax\\"', "nop")), " sections; 1000 are"),
    "more sections than a header can count": (
        assembly(*each(70_000, '.section .text.a@,\\"ax\\"', "nop")), "too much time or memory",
    ),
    "symbols": (assembly(*each(400_000, "symbol@:")), " symbols; 20000 are the bound"),
    "debug information": (
        assembly('.section .debug_str,\\"MS\\",@progbits,1', ".fill 30000000,1,65", ".byte 0"), "28 MB of debug",
    ),
    "what says that it is much": (
        assembly('.section .debug_x,\\"0x800\\"', ".quad 1", ".quad 1 << 40", ".quad 1"), "1048576 MB of debug",
    ),
    "variables": (below("char large[24 << 20] = {1};\n"), "24 MB of variables that do not begin as 0; 16 MB are"),
    "room before a variable": (below('__asm__(".comm far,8,1<<30");'), "an alignment of 1073741824 bytes; 2097152 are"),
    "an alignment in code": (assembly(".balign 1<<30", "nop"), "gcc refuses the file|an alignment of 1073741824"),
    "an alignment in data": (
        assembly('.section .bss.x,\\"aw\\",@nobits', ".balign 1<<30", ".zero 8"),
        "larger than 64 MB|an alignment of 1073741824",
    ),
    "zeros": (assembly(".bss", ".skip 0x7fffffffffff"), "cannot be linked"),
    "complaints": (assembly(".rept 60000", '.error \\"x\\\\n[[[[[[[[[[[[[\\"', ".endr"), "more than a megabyte"),
}  # fmt: skip
"""Programs, and what is said of them, by one assembler or another."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MUCH)
def test_a_file_that_makes_much_is_a_compile_error_that_says_the_bound(name: str, tmp_path: Path) -> None:
    """In ten seconds and half a gigabyte of grader and child."""
    source, says = MUCH[name]
    (verdict, score, *messages), seconds, size = measured(tmp_path, source)

    assert (verdict, score) == ("compile_error", "0")
    assert any(re.search(says, message) for message in messages), messages
    assert seconds < _MOST_SECONDS
    assert size < _MOST_BYTES


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
    assert seconds < _MOST_SECONDS
    assert size < _MOST_BYTES


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("more", "kind"),
    [
        (
            [".rept 20000", ORDER, "xchgq %rbx,%rbx", ".endr"],
            "Valgrind",
        ),
        (['.section .init_array,\\"aw\\"', ".rept 500000", ".quad llm_destroy", ".endr"], "before main"),
        (
            each(15_000, '.section .init_array,\\"aw\\"', ".quad f@", ".text", ".type f@,%function", "f@: ret"),
            "before main",
        ),
    ],
    ids=["orders", "one constructor, often", "constructors"],
)
def test_much_that_is_forbidden_is_rejected_as_soon(more: list[str], kind: str, tmp_path: Path) -> None:
    """The first of it is shown with its lines; all of it has to be allowed."""
    (verdict, score, *messages), seconds, size = measured(tmp_path, assembly(*more))

    assert (verdict, score) == ("rejected", "0")
    assert any(kind in message for message in messages)
    assert seconds < _MOST_SECONDS
    assert size < _MOST_BYTES


def test_all_of_many_constructors_have_to_be_allowed() -> None:
    """Also those of which the report has no room to tell."""
    names = [f"hook{number}" for number in range(30)]
    source = below("int n;", *(f"__attribute__((constructor)) static void {name}(void) {{ n++; }}" for name in names))

    assert graded(source, *names[:25]).verdict is Verdict.REJECTED
    assert graded(source, *names).verdict is Verdict.ACCEPTED


FORGED = {
    "lines": assembly(".section .debug_line", ".fill 3000,4,0xffffffff"),
    "functions": assembly(".section .debug_info", ".fill 300,4,0x11223344", ".section .debug_abbrev", ".fill 9,1,129"),
    "notes": assembly('.section .note.gnu.property,\\"a\\",@note', ".long 4,0x7ffffff0,5,0x554e47,-1"),
}
"""Assembly behind which debug lines are not what they seem."""


@pytest.mark.parametrize("name", FORGED)
def test_forged_debug_information_costs_lines_at_most(name: str) -> None:
    """Programs that need no line are accepted; where addr2line fails by it the line is unknown."""
    accepted(FORGED[name])
    record = graded(CONSTRUCTOR + FORGED[name].removeprefix(right()))

    assert record.verdict is Verdict.REJECTED
    assert [finding.field for finding in record.findings] == ["hook"]


def test_what_cannot_be_decompressed_cannot_be_linked() -> None:
    """That is the file's own fault."""
    record = graded(assembly('.section .debug_x,\\"0x800\\"', ".quad 1,99,1,77"))

    assert (record.verdict, [finding.kind for finding in record.findings]) == (Verdict.COMPILE_ERROR, ["linker"])


def test_a_file_name_with_a_line_in_it_is_no_line() -> None:
    """Nor a number of more digits than are read."""
    source = CONSTRUCTOR.replace(
        "    started++;", f'__asm__(".file 77 \\"x/llm_memory.c:{"1" * 5000} (discriminator\\"\\n.loc 77 1\\nnop");'
    )
    record = graded_text(source.replace("int started;", ""), first_case())

    assert record.verdict in (Verdict.REJECTED, Verdict.COMPILE_ERROR)


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
def test_messages_are_read_in_linear_time(number: int) -> None:
    """Brackets, nesting, and more messages than anybody reads."""
    text = list(_hard())[number]
    found = diagnostics.parse(text)

    assert len(found) <= 1000
