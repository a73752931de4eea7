"""A tool that works for nobody here costs nobody a point; what a file does to itself remains its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.core.errors import DriverError, GraderError, OutOfRoom
from grader.core.verdict import Verdict
from grader.system import sandbox
from grader.tests.support.programs import first_case, graded_text, right

_WRONG = "int main(void) { return x; }"
_UNRESOLVED = f"{right()}\nint elsewhere(void);\nint use(void);\nint use(void) {{ return elsewhere(); }}\n"


def _own_assembler() -> str:
    """The one that gcc of this machine starts: a name, or a path."""
    words = ["gcc", "-print-prog-name=as"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A tool before the system's: a shell script, in which $real is that."""
    usual = sandbox._environment
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def put(name: str, script: str) -> None:
            if name == "as" and Path(_own_assembler()).is_absolute():
                pytest.skip("gcc of this machine starts one assembler, wherever PATH leads")
            wrapper = Path(folder, "bin", name)
            wrapper.parent.mkdir(mode=0o755, exist_ok=True)
            wrapper.write_text(f"#!/bin/sh\nreal=/usr/bin/{name}\n{script}\n", encoding="utf-8")
            wrapper.chmod(0o755)
            path = f"{wrapper.parent}:/usr/bin:/bin"
            monkeypatch.setattr(sandbox, "_environment", lambda inner: usual(inner) | {"PATH": path})

        yield put


def test_a_compiler_that_cannot_compile_blames_nobody(tool: Callable[[str, str], None]) -> None:
    """Whatever is wrong with it, its own words are told."""
    tool("gcc", 'exec $real -include no-such-header.h "$@"')

    with pytest.raises(DriverError, match="no-such-header"):
        graded_text(right(), first_case())


def test_headers_in_a_strange_place_blame_nobody(tool: Callable[[str, str], None], bare: Callable[..., None]) -> None:
    """No student has put them into his program."""
    bare("landlock", "bubblewrap")
    with tempfile.TemporaryDirectory() as strange:
        Path(strange).chmod(0o755)
        Path(strange, "stdbool.h").write_text("#define bool _Bool\n", encoding="utf-8")
        tool("gcc", f'exec $real -isystem {strange} "$@"')
        with pytest.raises(DriverError, match=f"{strange}/stdbool.h"):
            graded_text(f"#include <stdbool.h>\n{right()}", first_case())


@pytest.mark.parametrize("name", ["gcc", "as", "ld", "objcopy"])
def test_a_tool_that_begins_to_fail_blames_nobody(tool: Callable[[str, str], None], name: str) -> None:
    """What it did for the submission before says nothing about now."""
    tool(name, 'exec $real "$@"')
    assert graded_text(_WRONG, first_case()).verdict is Verdict.COMPILE_ERROR
    assert graded_text(_UNRESOLVED, first_case()).verdict is Verdict.COMPILE_ERROR

    for script in ("echo 'no space left' >&2; exit 1", "echo garbage; exit 0", "kill -9 $$"):
        tool(name, script)
        if name == "ld":
            tool("ld.gold", script)
        for source in (right(), *([_WRONG] if name == "gcc" else [_UNRESOLVED])):
            assert failure(source), (name, script)


def failure(source: str) -> str:
    """What the grader says of its own fault; "" where there is a record."""
    try:
        graded_text(source, first_case())
    except GraderError as error:
        return str(error)
    return ""


def test_a_compiler_that_is_killed_blames_nobody(tool: Callable[[str, str], None]) -> None:
    """A kernel without memory ends the process that wants most, and nothing else: not the known-good file's."""
    kill = "exec $real \"$@\" -wrapper sh,-c,'kill -9 $$'"
    tool("gcc", f'grep -q elsewhere llm_memory.c && {kill}; exec $real "$@"')

    with pytest.raises(OutOfRoom, match="memory"):
        graded_text(_UNRESOLVED, first_case())


_SAYS_WHERE = "echo 'llm_memory.c:7:3: internal compiler error: in expand_expr, at expr.cc:1' >&2; exit 4"


def _in_its_place(tool: Callable[[str, str], None], name: str, script: str, *, where: str) -> None:
    """Let gcc start a script instead of its compiler or assembler, where `where` is true."""
    tool(name, f'{where} && {{ {script}; }}; exec $real "$@"')  # PATH leads to an assembler, whatever `where` says
    tool("gcc", f'{where} && exec $real -B"$(dirname "$0")/" "$@"; exec $real "$@"')


@pytest.mark.parametrize(
    ("name", "script", "lines"),
    [("cc1", _SAYS_WHERE, [7]), ("cc1", "kill -SEGV $$", []), ("as", "kill -ABRT $$", [])],
    ids=["internal error", "signal", "assembler"],
)
def test_a_file_on_which_gcc_crashes_is_told_so(
    tool: Callable[[str, str], None], name: str, script: str, lines: list[int]
) -> None:
    """It crashes again, and not with a known-good file: the file brings a mistake of gcc's to light."""
    _in_its_place(tool, name, script, where="grep -q elsewhere llm_memory.c")
    record = graded_text(_UNRESOLVED, first_case())
    (finding,) = record.findings

    assert record.verdict is Verdict.COMPILE_ERROR
    assert "gcc itself crashes on this file each time, and compiles another file here" in finding.message
    assert [place.line for place in finding.source] == lines


@pytest.mark.parametrize("script", [_SAYS_WHERE, "kill -SEGV $$"], ids=["internal error", "signal"])
def test_a_gcc_that_crashes_on_every_file_blames_nobody(tool: Callable[[str, str], None], script: str) -> None:
    """Then gcc or the machine is broken."""
    _in_its_place(tool, "cc1", script, where="true")

    assert "known-good" in failure(right())


def test_a_gcc_that_gives_no_reason_leaves_no_empty_sentence(tool: Callable[[str, str], None]) -> None:
    """The student can do something, at least."""
    _in_its_place(tool, "cc1", "exit 1", where="grep -q elsewhere llm_memory.c")

    assert "with the command of the handout" in graded_text(_UNRESOLVED, first_case()).findings[0].message


@pytest.mark.timeout(120)
def test_an_object_that_may_not_be_so_large_is_the_students() -> None:
    """And one that may be is graded like any other."""
    large = graded_text(f"{right()}\nconst char large[63 << 20] = {{1}};\n", first_case())
    too_large = graded_text(f"{right()}\nconst char large[70 << 20] = {{1}};\n", first_case())

    assert (large.verdict, large.findings) == (Verdict.ACCEPTED, ())
    assert too_large.verdict is Verdict.COMPILE_ERROR
    assert [finding.kind for finding in too_large.findings] == ["compiler-stopped"]
    assert "64 MB" in too_large.findings[0].message


def test_zeros_that_valgrind_has_no_room_for() -> None:
    """Natively they are only an address; a program that Valgrind cannot start hides from it what it does to memory."""
    record = graded_text(f"{right()}\nchar zeros[1900U << 20];\n", first_case(), valgrind=True)

    assert [finding.kind for finding in record.findings] == ["unseen-when-checked"]
    assert {score.rule for score in record.rules if score.points < score.max_points} == {"leak", "memory-error"}
    assert record.unchecked.startswith("Valgrind saw 0 of 1 cases only: the program cannot be started under it.")
