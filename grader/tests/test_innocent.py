"""A compiler that compiles nothing here is our fault, and costs nobody a point."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader import sandbox
from grader.build import innocent
from grader.errors import DriverError
from grader.tests.programs import first_case, graded_text, right
from grader.verdict import Verdict


@pytest.fixture
def gcc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A gcc before the system's, with these options."""
    usual = sandbox._environment
    monkeypatch.setattr(innocent, "_found_well", set())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def put(options: str) -> None:
            wrapper = Path(folder, "bin", "gcc")
            wrapper.parent.mkdir(mode=0o755)
            wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/gcc {options} "$@"\n', encoding="utf-8")
            wrapper.chmod(0o755)
            path = f"{wrapper.parent}:/usr/bin:/bin"
            monkeypatch.setattr(sandbox, "_environment", lambda inner: usual(inner) | {"PATH": path})

        yield put


def test_a_compiler_that_cannot_compile_blames_nobody(gcc: Callable[[str], None]) -> None:
    """Whatever is wrong with it, its own words are told."""
    gcc("-include no-such-header.h")

    with pytest.raises(DriverError, match="no-such-header"):
        graded_text(right(), first_case())


def test_headers_in_a_strange_place_blame_nobody(gcc: Callable[[str], None], bare: Callable[..., None]) -> None:
    """No student has put them into his program."""
    bare("landlock", "bubblewrap")
    with tempfile.TemporaryDirectory() as strange:
        Path(strange).chmod(0o755)
        Path(strange, "stdbool.h").write_text("#define bool _Bool\n", encoding="utf-8")
        gcc(f"-isystem {strange}")
        with pytest.raises(DriverError, match=f"{strange}/stdbool.h"):
            graded_text(f"#include <stdbool.h>\n{right()}", first_case())


def test_a_wrong_file_is_still_the_students(gcc: Callable[[str], None]) -> None:
    """The compiler is asked once, and found well."""
    gcc("")

    assert graded_text("int main(void) { return x; }", first_case()).verdict is Verdict.COMPILE_ERROR
    assert innocent._found_well != set()
