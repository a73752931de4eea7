"""Our side of a program compiles where libc's headers make macros of functions, as C23 wants it and glibc 2.43 does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grader.runtime.native.compile import harness_objects
from grader.runtime.native.compile.elf import Elf, Symbols
from grader.tests.support.programs import native

_MACROS = {
    "string.h": {
        "memchr(s, c, n)": "char",
        "strchr(s, c)": "char",
        "strrchr(s, c)": "char",
        "strpbrk(s, set)": "char",
        "strstr(s, word)": "char",
    },
    "stdlib.h": {"bsearch(key, s, count, size, order)": "void"},
    "wchar.h": {
        "wcschr(s, c)": "wchar_t",
        "wcsrchr(s, c)": "wchar_t",
        "wcspbrk(s, set)": "wchar_t",
        "wcsstr(s, word)": "wchar_t",
        "wmemchr(s, c, n)": "wchar_t",
    },
}
"""What returns a pointer into `s`, const where that is: a call, and to what it points."""


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A folder with headers that hold the usual ones and these macros."""
    folder = tmp_path / "newer"
    folder.mkdir()
    for name, macros in _MACROS.items():
        lines = [
            f"#define {call} _Generic(0 ? (s) : (void *)1, const void *: (const {kind} *)({call}), default: {call})"
            for call, kind in macros.items()
        ]
        text = "\n".join(["#pragma GCC system_header", f"#include_next <{name}>", *lines, ""])
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_our_side_is_made(newer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Natively, for Valgrind, and the start without libc, which has a `strchr` of its own."""
    monkeypatch.setattr(harness_objects, "_OUR_FLAGS", (*harness_objects._OUR_FLAGS, f"-I{newer}"))
    made = tmp_path / "made"
    made.mkdir()
    harness_objects._make(native().project, made)

    assert {"marker.o", "native.o", "valgrind.o", "starts"} <= {path.name for path in made.iterdir()}
    if os.uname().machine == "x86_64":
        elf = Elf.read((made / "freestanding.o").read_bytes())
        assert elf is not None
        assert "strchr" in Symbols.of(elf).defined
