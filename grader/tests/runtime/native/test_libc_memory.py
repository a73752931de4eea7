"""Whatever libc has that allocates: the harness stands in for it, and it behaves as libc's does."""

from __future__ import annotations

from functools import cache

import pytest

from grader.attempt import Attempt
from grader.core.verdict import Verdict
from grader.tests.support.programs import (
    POSIX,
    attempted,
    expected_records,
    findings,
    line_of,
    second_case,
    variants,
    varied,
)

_TOP = POSIX + (
    "#include <errno.h>\n#include <malloc.h>\n#include <stdarg.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "#include <wchar.h>\n"
    "void *same(void *address);\n"
    "__attribute__((noipa)) void *same(void *address) { return address; }\n"
    "__attribute__((format(printf, 2, 3))) static inline int told(char **text, const char *format, ...)\n"
    "{ va_list list; va_start(list, format);\n int n = vasprintf(text, format, list); /* TOLD */\n"
    "va_end(list); return n; }\n"
    "static inline void feed(const char *text)\n"
    "{ for (size_t i = strlen(text); i > 0; i--) ungetc(text[i - 1], stdin); }\n"
)

_FAMILY = [
    "char *p = calloc(3, 7);",
    "for (int i = 0; i < 21; i++) if (p[i] != 0) return 100;",
    "p = realloc(p, 500);",
    "for (int i = 0; i < 21; i++) if (p[i] != 0) return 101;",
    "p[499] = 1;",
    "p = realloc(p, 20);",
    "free(p);",
    'p = strdup("paged");',
    'if (strcmp(p, "paged") != 0) return 102;',
    "free(p);",
    'p = strndup("attention", 3);',
    'if (strcmp(p, "att") != 0) return 103;',
    "free(p);",
    "p = aligned_alloc(256, 512);",
    "if ((size_t)p % 256 != 0) return 104;",
    "memset(p, 7, 512);",
    "free(p);",
    "void *q = NULL;",
    "if (posix_memalign(&q, 4096, 100) != 0 || (size_t)q % 4096 != 0) return 105;",
    "free(q);",
    "p = reallocarray(NULL, 5, 5);",
    "free(p);",
    "p = realloc(malloc(9), 0); if (p != NULL) return 107;",
    "p = same(malloc(0));",
    "free(p);",
    "free(NULL);",
    "p = malloc(1); if ((size_t)p % 16 != 0) return 109; free(p);",
]


_ALIGNED = [
    "volatile size_t odd = 48, none = 0, four = 4, eight = 8; void *q = (void *)1;",
    "errno = 0; if (aligned_alloc(odd, 96) != NULL || errno != EINVAL) return 100;",
    "if (aligned_alloc(none, 96) != NULL) return 101;",
    "if (posix_memalign(&q, odd, 96) != EINVAL || posix_memalign(&q, four, 96) != EINVAL) return 102;",
    "if (posix_memalign(&q, none, 96) != EINVAL || q != (void *)1) return 103;",
    "if (posix_memalign(&q, eight, 96) != 0 || (size_t)q % 8 != 0) return 104;",
    "free(q); q = memalign(odd, 10); if ((size_t)q % 64 != 0) return 105;",
    "if (malloc_usable_size(q) < 10 || malloc_usable_size(NULL) != 0) return 106;",
    "free(q); q = valloc(10); if ((size_t)q % 4096 != 0) return 107;",
    "free(q); q = pvalloc(10); if ((size_t)q % 4096 != 0 || malloc_usable_size(q) != 4096) return 108;",
    "free(q);",
]

_TEXT = [
    "char *text = NULL, *line = NULL; size_t room = 0;",
    'if (asprintf(&text, "%d of %s", 7, "many") != 9 || strcmp(text, "7 of many") != 0) return 100;',
    'free(text); if (told(&text, "%s", "") != 0 || text[0] != 0) return 101;',
    'free(text); feed("one\\ntwo");',
    'if (getline(&line, &room, stdin) != 4 || strcmp(line, "one\\n") != 0 || room < 5) return 103;',
    'if (getline(&line, &room, stdin) != 3 || strcmp(line, "two") != 0) return 104;',
    "if (getline(&line, &room, stdin) != -1) return 105;",
    'free(line); line = NULL; room = 99; feed(";;b");',
    "if (getdelim(&line, &room, ';', stdin) != 1 || getdelim(&line, &room, ';', stdin) != 1) return 107;",
    "if (getdelim(&line, &room, ';', stdin) != 1 || line[0] != 'b') return 108;",
    'free(line); wchar_t *wide = wcsdup(L"wide"); if (wide == NULL || wcscmp(wide, L"wide") != 0) return 109;',
    "free(wide);",
]

_LONG = [
    "char text[701] = {0}; memset(text, 'x', 700); text[699] = 10; feed(text);",
    "char *line = malloc(1); size_t room = 1;",
    "if (getline(&line, &room, stdin) != 700 || room < 701 || memcmp(line, text, 701) != 0) return 101;",
    "free(line);",
]

_LIBCS_OWN = [
    "char *text; size_t size; FILE *file = open_memstream(&text, &size); if (file == NULL) return 100;",
    'for (int i = 0; i < 60000; i++) fprintf(file, "%d", 7);',
    "fclose(file); if (size != 60000) return 101;",
    "text = realloc(text, 60010); if (text == NULL || text[59999] != '7') return 102;",
    "free(text);",
]


_REFUSED = ("malloc(huge)", "calloc(huge, 4)", "realloc(NULL, huge)", "reallocarray(NULL, huge, 4)")
_HARMLESS = {
    "the whole family": _FAMILY,
    **{
        f"the impossible {call}": ["volatile size_t huge = (size_t)-1 / 2;", f"if (same({call}) != NULL) return 106;"]
        for call in _REFUSED
    },
    "aligned": _ALIGNED,
    "text": _TEXT,
    "long line": _LONG,
    "libc's own": _LIBCS_OWN,
}


@cache
def harmless() -> Attempt:
    """The attempt of a program that does each of them in a case of its own, natively and under Valgrind."""
    source = varied(["\n".join(lines) for lines in _HARMLESS.values()], top=_TOP)
    return attempted(source, *variants(len(_HARMLESS)), second_case(), valgrind=True)


@pytest.mark.parametrize("name", _HARMLESS)
def test_the_family_of_malloc_works(name: str) -> None:
    """As libc's: alignment, contents, size 0, sizes and alignments that are refused, what libc itself allocates.

    Nothing of it is a finding, and the append that does it first is right all the same.
    """
    attempt = harmless()
    number = list(_HARMLESS).index(name)
    played = attempt.replayed.played[number]

    assert [step.record for step in played.steps] == expected_records(played.case)
    assert [finding for finding in findings(attempt) if finding.case == played.case.name] == []


_LOSING = {
    "strdup": 'same(strdup("lost"));',
    "strndup": 'same(strndup("lost", 2));',
    "wcsdup": 'same(wcsdup(L"lost"));',
    "asprintf": 'char *text = NULL; if (asprintf(&text, "%d", 5) < 0) return 100; same(text);',
    "vasprintf": 'char *text = NULL; if (told(&text, "%d", 5) < 0) return 100; same(text);',
    "aligned_alloc": "same(aligned_alloc(64, 64));",
    "posix_memalign": "void *q = NULL; if (posix_memalign(&q, 64, 64) != 0) return 100; same(q);",
    "memalign": "same(memalign(64, 64));",
    "valloc": "same(valloc(64));",
    "pvalloc": "same(pvalloc(64));",
    "reallocarray": "same(reallocarray(NULL, 4, 4));",
    "realloc": "same(realloc(NULL, 16));",
    "getline": "char *line = NULL; size_t room = 0; if (getline(&line, &room, stdin) != -1) return 100; same(line);",
}


@cache
def losing() -> tuple[str, Attempt]:
    """A program that loses memory of each of them in a case of its own, and its attempt."""
    source = varied([f"{statements} /* {name} */" for name, statements in _LOSING.items()], top=_TOP)
    return source, attempted(source, *variants(len(_LOSING)))


@pytest.mark.parametrize("name", _LOSING)
def test_what_they_return_is_tracked(name: str) -> None:
    """Lost memory of each of them is a leak, at its line and operation, without Valgrind."""
    source, attempt = losing()
    case = attempt.cases[list(_LOSING).index(name)]
    (finding,) = (finding for finding in findings(attempt) if finding.case == case.name)

    assert (finding.verdict, finding.operation) == (Verdict.MEMORY_LEAK, 6)
    assert finding.source[0].line == line_of(source, "/* TOLD */" if name == "vasprintf" else f"/* {name} */")
