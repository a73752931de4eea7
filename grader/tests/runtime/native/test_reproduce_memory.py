"""Wrong use of memory, as a case's C program tells it without any tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.system.process import Completed
from grader.tests.support.reproduced import ACCEPTED, Bench, cases, program_text, said


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One folder for all tests of this module."""
    return Bench(tmp_path_factory.mktemp("memory"))


def test_leaving_the_program_is_no_success(bench: Bench, tmp_path: Path) -> None:
    """A call that ends with exit(0) must not look like silence."""
    done = _appending(bench, tmp_path, "exit(0);")

    assert done.exit_code == 1
    assert said(done).splitlines()[0].endswith(": append_kv 2 77 -> 0 (line 10 of the case)")
    assert said(done).splitlines()[2] == "  the call ends the whole program"


def _appending(bench: Bench, folder: Path, does: str) -> Completed:
    """A program run beside a sample whose append_kv does something first."""
    source = folder / "llm_memory.c"
    source.write_text(
        "#define _POSIX_C_SOURCE 200809L\n#define append_kv real_append_kv\n"
        f'#include "{ACCEPTED[0]}"\n'
        "#undef append_kv\n"
        "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        "static volatile size_t hidden_one = 1;\n"
        "static void *volatile hidden_address;\n"
        "static inline void *hidden(void *p) { hidden_address = p; return hidden_address; }\n"
        f"int append_kv(LLMEngine *e, int i, int d) {{ {does} return hidden_one ? real_append_kv(e, i, d) : -1; }}\n"
    )
    text = program_text(cases()["append/first_append_after_fork_copies"], 3)
    return bench.beside(text, source)
