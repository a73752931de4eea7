"""The program that Valgrind runs: without libc where the student's object needs little of it (freestanding.c)."""

from __future__ import annotations

import io

from elftools.elf.elffile import ELFFile

from grader.attempt import Attempt
from grader.core.case import Case
from grader.runtime.native.project import native_program
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    findings,
    first_case,
    variants,
    varied,
)

_STRINGS = r"""
    char a[40], b[40];
    memset(a, 'x', sizeof a);
    memcpy(a + 3, "0123456789abcdefghij", 21);
    memmove(a + 5, a + 3, 20);
    memmove(a + 4, a + 5, 20);
    assert(memcmp(a, "xxx001", 6) == 0 || memcmp(a, "xxx0012", 7) == 0 || a[3] == '0');
    strcpy(b, "seq");
    assert(strlen(b) == 3 && strcmp(b, "seq") == 0 && strcmp(b, "ser") < 0 && strncmp(b, "sex", 2) == 0);
    assert(strchr(b, 'q') == b + 2 && strchr(b, 'z') == NULL && *strchr(b, 0) == 0);
    assert(memcmp("\x01", "\xff", 1) < 0);
    memset(a, 0xA5, 39);
    for (int i = 0; i < 39; i++)
        assert((unsigned char)a[i] == 0xA5);
    for (int i = 0; i < 40; i++)
        a[i] = (char)i;
    for (int to = 0; to < 9; to++) {
        char before[40];
        for (int i = 0; i < 40; i++)
            before[i] = a[i];
        memmove(a + to, a + 4, 24);
        for (int i = 0; i < 24; i++)
            assert(a[to + i] == before[4 + i]);
    }
"""


def loader(program: bytes) -> bool:
    """Does it need the dynamic loader?"""
    return any(part["p_type"] == "PT_INTERP" for part in ELFFile(io.BytesIO(program)).iter_segments())


def checked(source: str, *cases: Case) -> Attempt:
    """All steps, Valgrind too."""
    return attempted(source, *(cases or (first_case(),)), valgrind=True)


def needs_loader(attempt: Attempt) -> bool:
    """The same of the program that was made for Valgrind."""
    assert attempt.built.program is not None
    return loader(native_program(attempt.built.program).checked)


_USUAL = (
    "",
    'printf("%d %5.1f%% %s: %p %c %lx %zu %*d", seq_id, 12.5, "x", (void *)engine, 65, 7L, sizeof 1, 5, 6);',
    'puts("x"); putchar(65); fputs("y", stderr); fputc(66, stdout); fflush(stdout); perror("z");',
    "assert(seq_id != 77);",
    'FILE *log = fopen("log", "a"); if (log != NULL) { fputs("x", log); fclose(log); }',
    "static _Thread_local int calls = 3; static int others = 5; assert(calls++ >= 3 && others++ >= 5);",
)


def test_the_usual_needs_no_loader() -> None:
    """Prints, assertions and statics, each in a case of its own, and nothing is found wrong with them."""
    attempt = checked(varied(_USUAL), *variants(len(_USUAL)))

    assert not needs_loader(attempt)
    assert findings(attempt) == []


def test_its_string_functions_do_what_libc_does() -> None:
    """Assertions that hold natively hold under Valgrind too, where these functions are ours."""
    source = around(
        "append_kv", _STRINGS, top=POSIX + "#include <string.h>\n#define memcpy(a, b, c) memmove(a, b, c)\n"
    )
    attempt = checked(source)

    assert not needs_loader(attempt)
    assert findings(attempt) == []
