"""Programs for the tests of the object scan, and functions that grade them."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

import pytest

from grader import pipeline
from grader.core.record import Record
from grader.core.verdict import Finding, Verdict
from grader.labs.paged_kv.lab import lab
from grader.runtime.protocol import GradingOptions
from grader.tests.support.programs import first_case, right, second_case

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs hold x86-64 instructions")

ORDER = "rolq $3,%rdi\\nrolq $13,%rdi\\nrolq $61,%rdi\\nrolq $51,%rdi\\n"
"""The rotations with which a client request to Valgrind begins, in assembly."""

BYTES = bytes.fromhex("48c1c703 48c1c70d 48c1c73d 48c1c733 4887db")
"""A complete client request."""

ASKS = """static void ask(void)
{
    __asm__ volatile("ORDER" ::: "rdi", "cc"); /* HERE */
}
""".replace("ORDER", (ORDER + "xchgq %rbx,%rbx").replace("%", "%%"))
"""A C function that makes a client request."""


def graded(source: str, *allowed: str) -> Record:
    """Return the record of this source for two cases, run natively."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "llm_memory.c").write_text(source, encoding="utf-8")
        cases = (first_case(), second_case())
        return pipeline.grade(Path(folder), lab(), cases, GradingOptions(seed=1, memory_checker=False, allowed=allowed))


def rejected(source: str) -> tuple[Finding, ...]:
    """Return the findings for which this source is rejected; nothing of it may have been run."""
    record = graded(source)

    assert (record.verdict, record.score, record.would_score) == (Verdict.REJECTED, 0, None)
    assert record.outcomes == ()
    assert record.output == ""
    assert {(finding.rule, finding.tool) for finding in record.findings} == {("compile", "scan")}
    return record.findings


def accepted(source: str) -> Record:
    """Return the record of a source, which must have no finding and lose no points."""
    record = graded(source)

    assert (record.findings, record.verdict) == ((), Verdict.ACCEPTED)
    return record


def below(*lines: str) -> str:
    """Return the right program with lines after it."""
    return "\n".join([right(), *lines, ""])


def assembly(*lines: str) -> str:
    """Return the right program with assembly after it."""
    return below("__asm__(" + "".join(f'"{line}\\n"' for line in lines) + '".text\\n");')


CONSTRUCTOR = below(
    "int started;", "__attribute__((constructor)) void hook(void)", "{ /* HERE */", "    started++;", "}"
)
DESTRUCTOR = below("int n;", "__attribute__((destructor)) static void hook(void)", "{ /* HERE */", "    n++;", "}")
