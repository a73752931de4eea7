"""Public and hidden cases share no process: what a program learns in a hidden one reaches no student's report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader.runtime.native.replay import plan
from grader.runtime.runs import by_visibility
from grader.tests.support.programs import POSIX, around, attempted, findings, made, memcheck_of, native

pytestmark = pytest.mark.usefixtures("whole_libc")

_SECRET = 4096 * 7
"""A sequence of the hidden case has this id, and programs try to hand it on to the public one."""

_HIDDEN = made(
    "hidden", f"create_sequence {_SECRET} 5 -> seq", header='pool_blocks = 4; visibility = "hidden"', rule="list"
)
_PUBLIC = made("public", "create_sequence 1 5 -> seq; append_kv 1 11 -> 0")


def test_a_plan_with_both_is_refused() -> None:
    """By the one function that makes what a process is given."""
    cases = (_HIDDEN, _PUBLIC, _HIDDEN)

    assert by_visibility(cases, range(3)) == [[1], [0, 2]]
    assert by_visibility(cases, [2]) == [[2]]
    assert plan(cases, [0, 2], token=1, driver=native().driver)
    with pytest.raises(ValueError, match="public and hidden"):
        plan(cases, [0, 1], token=1, driver=native().driver)


def test_prints_of_a_hidden_case_are_thrown_away() -> None:
    """Also those of a case that stands between public ones."""
    say = '    fprintf(stderr, "id %d\\n", seq_id); printf("id %d\\n", seq_id);'
    source = around("create_sequence", say)
    attempt = attempted(source, _PUBLIC, _HIDDEN, _PUBLIC)

    assert attempt.replayed.output.splitlines() == [b"id 1"] * 4


def test_a_note_in_the_pipe_of_the_report_is_not_found(bare: Callable[..., None]) -> None:
    """The size of a pipe outlives the process that sets it."""
    bare("seccomp", "landlock", "bubblewrap")
    note = (
        f"    for (int fd = 3; fd < 1024; fd++) {{\n"
        f"        if (seq_id == {_SECRET}) fcntl(fd, F_SETPIPE_SZ, seq_id + 4096);\n"
        f'        else if (fcntl(fd, F_GETPIPE_SZ) > 0) printf("size %d\\n", fcntl(fd, F_GETPIPE_SZ));\n'
        f"    }}"
    )
    attempt = attempted(around("create_sequence", note), _HIDDEN, _PUBLIC)

    sizes = set(attempt.replayed.output.split(b"\n"))
    assert any(size.startswith(b"size ") for size in sizes)
    assert not any(str(size).encode() in line for line in sizes for size in (32768, _SECRET))


def test_a_note_left_under_valgrind_is_not_found() -> None:
    """The mask for new files is the process's; whoever finds the note makes an error of it."""
    top = POSIX + "#include <stdlib.h>\n#include <sys/stat.h>\n"
    note = (
        f"    if (seq_id == {_SECRET}) umask(0123);\n"
        "    else if (umask(0123) == 0123) { volatile int *p = malloc(8); if (p[1]) kv_len += 0; free((int *)p); }"
    )
    attempt = attempted(around("create_sequence", note, top=top), _HIDDEN, _PUBLIC, valgrind=True)

    assert memcheck_of(attempt).processes == 2
    assert memcheck_of(attempt).unchecked == ()
    assert findings(attempt) == []
