"""Programs that reach for what is not theirs: descriptors, processes, the output, the harness's names."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.attempt import Attempt
from grader.core.verdict import Verdict
from grader.runtime.protocol import End
from grader.system.confine.launcher import machine
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    expected_records,
    findings,
    first_case,
    graded_text,
    made,
    memcheck_of,
    right,
    second_case,
    variants,
    varied,
)

pytestmark = pytest.mark.usefixtures("whole_libc")


@pytest.fixture(autouse=True)
def _nothing_refused(bare: Callable[..., None]) -> None:
    """On a kernel that refuses no file and no system call; where it does, none of this comes so far."""
    bare("landlock", "seccomp")


_CALL = 5
"""The operation of `first_case` that goes wrong: the append to sequence 2."""


def trouble(statements: str, *, top: str = POSIX) -> str:
    """A right program whose `append_kv` does this when it comes to sequence 2."""
    return around("append_kv", f"    if (seq_id == 2) {{ {statements} }}", top=top)


def assert_whole(attempt: Attempt, number: int, operations: int | None = None) -> None:
    """The records of this case are the reference's, up to that operation."""
    one = attempt.replayed.played[number]
    assert [step.record for step in one.steps] == expected_records(one.case)[:operations]


def assert_right(attempt: Attempt) -> None:
    """Nothing at all is wrong."""
    assert findings(attempt) == []
    for number in range(len(attempt.cases)):
        assert_whole(attempt, number)


def survivors(folder: Path) -> Iterator[int]:
    """Processes that were started in this workspace and still live."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"TMPDIR={folder}\0".encode() in (entry / "environ").read_bytes():
                yield int(entry.name)


_ALL_DESCRIPTORS = "for (int fd = 0; fd < 1024; fd++)"


def test_garbage_in_every_descriptor_costs_nothing() -> None:
    """Whoever finds the channel and writes nonsense into it changes no record, no error and no score.

    Natively, and then under Valgrind.
    """
    words = "{ ssize_t sent = write(fd, junk, sizeof junk); (void)sent; }"
    top = (
        POSIX
        + 'static const char junk[] = "garbage </error><error><kind>UninitValue</kind> garbage garbage garbage";\n'
    )
    attempt = attempted(trouble(f"{_ALL_DESCRIPTORS} {words}", top=top), first_case(), second_case(), valgrind=True)

    assert_right(attempt)
    assert memcheck_of(attempt).processes == 1


def test_closing_every_descriptor_ends_only_its_own_case() -> None:
    """Natively the case stops there; the next one has its own channel again."""
    attempt = attempted(trouble(f"{_ALL_DESCRIPTORS} close(fd);"), first_case(), second_case())

    assert [comparison.ending_kind for comparison in attempt.comparisons] == ["stopped", "reached"]
    assert_whole(attempt, 0, _CALL)
    assert_whole(attempt, 1)


def test_descriptors_closed_under_valgrind_only() -> None:
    """Three processes at most, the other cases are checked, and no judge error comes of it."""
    top = POSIX + "extern char *getenv(const char *);\n"
    statements = f'if (getenv("LD_PRELOAD") || getenv("GLIBCPP_FORCE_NEW")) {_ALL_DESCRIPTORS} close(fd);'
    attempt = attempted(trouble(statements, top=top), first_case(), second_case(), valgrind=True)

    assert memcheck_of(attempt).processes <= 3
    assert_whole(attempt, 1)


_OTHER_CALLS = (
    f"{_ALL_DESCRIPTORS} {{ long long done = ftruncate(fd, 0); (void)done; }}",
    f"{_ALL_DESCRIPTORS} {{ long long done = lseek(fd, 0, SEEK_SET); (void)done; }}",
    f"{_ALL_DESCRIPTORS} {{ long long done = fcntl(fd, F_SETFL, O_NONBLOCK); (void)done; }}",
    f"{_ALL_DESCRIPTORS} {{ long long done = fsync(fd); (void)done; }}",
    f"{_ALL_DESCRIPTORS} if (fd > 2) {{ fcntl(fd, F_SETFL, O_NONBLOCK); if (read(fd, junk, sizeof junk)) continue; }}",
)


def test_other_calls_on_every_descriptor_do_no_harm() -> None:
    """Truncating, seeking, reading, each in a case of its own: the channel is a pipe, what went through it is gone."""
    top = POSIX + "static char junk[64];\nchar *used = junk;\n"
    attempt = attempted(varied(_OTHER_CALLS, top=top), *variants(len(_OTHER_CALLS)), second_case())

    assert_right(attempt)


def test_no_process_outlives_the_grading() -> None:
    """A forked child is gone with the case or with the program, wherever it hides; the grading waits for none.

    It stays in its group, goes into one of its own, or into a session of its own; natively and under Valgrind.
    """
    statements = [
        f"if (fork() == 0) {{ {leaves} signal(SIGTERM, SIG_IGN); for (;;) pause(); }}"
        for leaves in ("", "setpgid(0, 0);", "setsid();")
    ]
    attempt = attempted(varied(statements), *variants(len(statements)), second_case(), valgrind=True)
    left = list(survivors(attempt.work.folder))
    for process in left:
        os.kill(process, signal.SIGKILL)

    assert left == []
    assert {comparison.end for comparison in attempt.comparisons} == {End.REACHED}


def test_a_fork_that_comes_back_twice_counts_once() -> None:
    """Both processes go on and report; each operation is taken down once."""
    assert_right(attempted(trouble("if (fork() < 0) return -1;"), first_case(), second_case()))


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel counts the bomb's processes with the tester's own")
def test_a_fork_bomb_stays_in_its_case() -> None:
    """The number of processes is bounded; the next case can fork again."""
    attempt = attempted(trouble("while (fork() >= 0) { }"), first_case(), second_case())
    left = list(survivors(attempt.work.folder))

    assert left == []
    assert_whole(attempt, 1)


def test_killing_the_driver_costs_no_other_case() -> None:
    """The parent, the group, everybody: the cases that had not begun are run in another process.

    Everybody would be the tester's other programs, too, where the program cannot run as another user.
    """
    for victim in ("getppid()", "0", *(["-1"] if os.geteuid() == 0 else [])):
        attempt = attempted(trouble(f"kill({victim}, SIGKILL);"), first_case(), second_case())

        assert_whole(attempt, 1)
        assert attempt.comparisons[1].end is End.REACHED


_WRITES = (
    'open("made", O_WRONLY | O_CREAT, 0600)',
    'open("llm_memory.c", O_WRONLY | O_APPEND)',
    'open("llm_memory.c", O_RDWR)',
    'mkdir("made", 0700)',
    'mkfifo("made", 0600)',
    'symlink("/", "made")',
    'link("program", "made")',
    'rename("program", "made")',
    'unlink("llm_memory.c")',
    'chmod(".", 0777)',
    "fcntl(1, F_SETOWN, getppid())",
)


@pytest.mark.skipif(not machine().seccomp, reason="this kernel refuses no system calls")
def test_no_file_is_made_or_changed_without_landlock_either(bare: Callable[..., None]) -> None:
    """Natively and under Valgrind: a program that gets so far ends there, in the case of its way to write."""
    bare("landlock", "bubblewrap")
    top = f"{POSIX}#include <fcntl.h>\n#include <stdio.h>\n#include <sys/stat.h>\n"
    statements = [f"if ({write} >= 0) __builtin_trap();" for write in _WRITES]
    attempt = attempted(varied(statements, top=top), *variants(len(statements)), valgrind=True)

    assert findings(attempt) == []
    assert memcheck_of(attempt).unchecked == ()
    assert not (attempt.work.folder / "made").exists()


def test_a_flood_of_output_is_bounded_and_kept() -> None:
    """Megabytes on both streams, whole and partial lines: the first part is shown, every operation counts."""
    flood = 'for (int i = 0; i < 30000; i++) { printf("out %090d\\n", i); fprintf(stderr, "err %090d", i); }'
    record = graded_text(trouble(flood), first_case(), second_case())

    assert record.score == record.max_score
    assert "out 0000" in record.output
    assert 100 < len(record.output) < 20_000


def test_partial_lines_do_not_mix_with_the_reports() -> None:
    """What was printed without a line end before a crash is there, and the records before it too."""
    source = trouble('printf("almost there"); fputs("oh no", stderr); raise(SIGSEGV);')
    attempt = attempted(source, first_case(), second_case())

    assert_whole(attempt, 0, _CALL)
    assert b"oh no" in attempt.replayed.output


def test_output_that_looks_like_a_report_is_only_shown() -> None:
    """Verdicts, JSON, XML on stdout: nobody parses them."""
    words = '{\\"score\\": 100} <error></error> PASSED verdict: accepted\\n'
    source = around("append_kv", f'    printf("{words}"); return -1;', after="    (void)result;")
    source = source.replace("int result = right_append_kv", "int result = 0; if (engine == NULL) right_append_kv")
    record = graded_text(source, first_case(), second_case())

    assert record.score == 0
    assert record.verdict is Verdict.WRONG_ANSWER
    assert "verdict: accepted" in record.output


def test_what_is_printed_in_a_hidden_case_is_not_kept() -> None:
    """It would tell what the case asks."""
    hidden = made(
        "hidden", "create_sequence 1 5 -> seq; append_kv 1 31337 -> 0", header='pool_blocks = 4; visibility = "hidden"'
    )
    public = made("public", "create_sequence 1 5 -> seq; append_kv 1 4242 -> 0")
    source = around("append_kv", '    printf("value %d\\n", kv_data); fprintf(stderr, "error %d", kv_data);')
    for cases in ((hidden, public), (public, hidden)):
        record = graded_text(source, *cases)

        assert "value 4242" in record.output
        assert "31337" not in record.output
        assert record.score == record.max_score


_NAMES = """
int harness_malloc(int a); int harness_malloc(int a) { return a; }
int harness_free(int a); int harness_free(int a) { return a; }
int lab_apply(int a); int lab_apply(int a) { return a; }
int lab_record = 3; int lab_start = 4; int harness_put; int record; int heap; int blocks = 5;
int student_data = 1; int student_bss; int __start_student_data = 7; int __stop_student_bss;
int __wrap_malloc(int a); int __wrap_malloc(int a) { return a; }
int hw_malloc(int a); int hw_malloc(int a) { return a; }
static struct { int token; } now; void *used = &now;
"""


def test_names_of_the_harness_do_not_clash() -> None:
    """A student may call anything as the harness does; everything but the six calls is hidden."""
    attempt = attempted(_NAMES + right(), first_case(), second_case(), valgrind=True)

    assert_right(attempt)
    assert memcheck_of(attempt).unchecked == ()


def test_own_allocators_by_other_names_work() -> None:
    """Wrappers and macros around malloc and free are counted like these."""
    top = "#include <stdlib.h>\nvoid *xmalloc(size_t n);\nvoid *xmalloc(size_t n) { return malloc(n); }\n"
    text = right().replace("malloc(", "xmalloc(").replace("free(", "my_free(")
    top += "#define my_free(p) do { free(p); (p) = NULL; } while (0)\n"

    assert_right(attempted(top + text, first_case(), second_case(), valgrind=True))
