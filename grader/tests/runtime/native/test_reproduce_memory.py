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


_AFTER = "int done = real_append_kv(e, i, d);"
_MISTAKES = {
    "store behind an odd array": (
        "volatile char *p = hidden(malloc(5)); p[5] = 1; free((void *)p);",
        "uses memory that is not its own: 0 bytes behind the end of the 5 bytes that this call allocated",
    ),
    "read behind": (
        "if (e->ref_count[e->total_local_blocks] == 7) return -1;",
        "0 bytes behind the end of the 20 bytes that llm_init 320 -> engine allocated",
    ),
    "store before": (
        "e->ref_count[-1] = 0;",
        "writes 4 bytes before the 20 bytes that llm_init 320 -> engine allocated",
    ),
    "read before": (
        "if (e->ref_count[-1] == 7) return -1;",
        "uses memory that is not its own: 4 bytes before the 20 bytes that llm_init 320 -> engine allocated",
    ),
    "read of freed memory": (
        "int *p = hidden(malloc(8)); free(hidden(p)); if (p[1] == 7) return -1;",
        "uses memory that is not its own: 4 bytes into the 8 bytes that this call allocated and this call freed",
    ),
    "second free": (
        "void *p = hidden(malloc(8)); free(hidden(p)); free(hidden(p));",
        "frees a second time the 8 bytes that this call allocated and this call freed",
    ),
    "free of a part": (
        "free(hidden(&e->active_seqs));",
        "frees what malloc never returned: 24 bytes into the 40 bytes that llm_init 320 -> engine allocated",
    ),
    "free of no memory": ("free(hidden(&i));", ", which malloc never returned"),
    "free of the pool": ("free(e->pool_base_ptr);", "the call frees the pool"),
    "freed engine left": (
        f"{_AFTER} free(hidden(e)); return done;",
        "what the call left is broken: it leads to memory that is not its own: ",
    ),
    "ref_count too small": (
        f"{_AFTER} free(e->ref_count); e->ref_count = calloc(3, 4); return done;",
        "engine->ref_count needs 20 bytes, but this call allocated 12 for it",
    ),
    "leak": (
        "hidden(malloc(24));",
        "1 allocation is never freed; the first: the 24 bytes that append_kv 2 77 -> 0 (line 10 of the case) allocated",
    ),
    "unset value": (
        "int *p = hidden(malloc(8)); int unset = p[1]; free(p); if (unset == -1) return -1;",
        "only in round 2 of 4, where memory that was never set is full of 0xFF",
    ),
    "addresses compared": (
        "char *p = hidden(malloc(8)), *q = hidden(malloc(8)); i -= (uintptr_t)q < (uintptr_t)p; free(p); free(q);",
        "only in round 4 of 4, where each allocation lies below the one before",
    ),
    "NULL": ("e = hidden(NULL); e->free_local_blocks++;", "the call uses a NULL pointer (address 0xc)"),
    "unset pointer": (
        "int **p = hidden(malloc(8)); **p = 1; free(p);",
        "the call uses a pointer that leads nowhere, as one does that was never set",
    ),
    "endless recursion": (
        "volatile int big[999]; big[0] = i; if (hidden_one && append_kv(e, i, d) == big[0]) return -1;",
        "the call uses up the stack",
    ),
    "endless allocation": ("for (;;) hidden(malloc(24));", "the call allocates without end: 16384 allocations"),
    "abort": ("abort();", "the call ends the whole program, by abort or a failed assert"),
}
"""What append_kv does first, and what the program says of it."""


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_wrong_use_of_memory_is_told_in_words(bench: Bench, tmp_path: Path, mistake: str) -> None:
    """By the program alone: the call, the allocation and who made it. What only reads is seen too."""
    does, says = _MISTAKES[mistake]
    done = _appending(bench, tmp_path, does)

    assert done.exit_code == 1
    assert says in said(done)


def test_every_way_to_ask_for_memory_is_served(bench: Bench, tmp_path: Path) -> None:
    """What conforming programs may call, libc's own allocations among them."""
    done = _appending(
        bench,
        tmp_path,
        'char *p = realloc(NULL, 3); strcpy(p, "ab"); p = realloc(p, 9000); if (strcmp(p, "ab") != 0) return -1;'
        "p = realloc(p, 2); if (p[1] != 'b' || realloc(p, 0) != NULL) return -1;"
        "p = aligned_alloc(256, 512); if ((uintptr_t)p % 256 != 0) return -1; free(p); free(NULL); free(malloc(0));"
        "p = malloc((size_t)-1 / hidden_one); if (p != NULL) return -1;"
        'FILE *f = fopen("/dev/null", "w"); fprintf(f, "%d %.300f", d, 1.0); fclose(f); printf("%d\\n", d);',
    )

    assert (done.exit_code, done.stdout, done.stderr) == (0, b"77\n" * 4, b"")


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
