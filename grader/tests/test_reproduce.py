"""A failing case as a C program: silent beside every accepted sample, and it fails where the sample fails.

Each program is compiled once. A sample is a shared library here, built with the handout's flags, so that one program
runs beside all of them; that the handout's own link command works is tested beside those that fail.
"""

from __future__ import annotations

import re
import signal
from functools import cache, cached_property
from pathlib import Path

import pytest

from grader import casefile
from grader.build.project import FLAGS
from grader.grammar import Case
from grader.labs import LABS
from grader.process import Completed, Patience, run
from grader.record import Record
from grader.reproduce import c_call, c_comment, c_string, fold
from grader.tests.graded import graded
from grader.verdict import Verdict

_ROOT = Path(__file__).parents[2]
_HEADER = _ROOT / "grader" / "drivers" / "paged_kv" / "llm_memory.h"
_SAMPLES = _ROOT / "submissions" / "paged_kv"
_PEACEFUL = [path for path in _SAMPLES.glob("*/*/llm_memory.c") if not path.parent.name.startswith("hostile_")]
"""Nothing protects us here from what we run."""
_ACCEPTED = sorted(path for path in _PEACEFUL if path.parts[-3] == Verdict.ACCEPTED)
_WRONG = sorted(
    path for path in _PEACEFUL if path.parts[-3] not in (Verdict.ACCEPTED, Verdict.COMPILE_ERROR, Verdict.REJECTED)
)
_TASKS = sorted(folder.name for folder in LABS["paged_kv"]().cases.iterdir() if folder.is_dir())
_VALGRIND = (
    *("valgrind", "-q", "--error-exitcode=9", "--leak-check=full"),
    *("--show-leak-kinds=all", "--errors-for-leak-kinds=all"),
)
_SHARERS = 5
"""So many programs share the accepted samples between them."""


@cache
def _cases() -> dict[str, Case]:
    lab = LABS["paged_kv"]()
    return {case.name: case for case in casefile.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed)}


def _program(case: Case, operation: int | None = None) -> str:
    last = len(case.trace.operations) - 1
    return LABS["paged_kv"]().reproduce(case, last if operation is None else operation)


class Bench:
    """A folder to compile in, and the samples that were compiled there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.libraries: dict[Path, Path] = {}

    @cached_property
    def first(self) -> Path:
        """The library that programs are linked with; another may take its place when they run."""
        return self.library(_ACCEPTED[0])

    def library(self, source: Path) -> Path:
        """A folder with the sample as a library."""
        if source not in self.libraries:
            place = self.libraries[source] = self.folder / f"library{len(self.libraries)}"
            place.mkdir()
            output = place / "libllm_memory.so"
            self.compile("-fPIC", "-shared", f"-I{_HEADER.parent}", str(source), "-o", str(output))
        return self.libraries[source]

    def program(self, text: str) -> Path:
        """The program, to be run beside any library."""
        (self.folder / "repro.c").write_text(text, encoding="utf-8")
        here = f"-I{_HEADER.parent}", f"-L{self.first}"
        self.compile(*here, "repro.c", "-lllm_memory", "-o", "shared")
        return self.folder / "shared"

    def linked(self, text: str, source: Path) -> Path:
        """The program, made by the handout's command beside a student's file."""
        (self.folder / "repro.c").write_text(text, encoding="utf-8")
        (self.folder / "llm_memory.c").write_bytes(source.read_bytes())
        (self.folder / "llm_memory.h").write_bytes(_HEADER.read_bytes())
        command = LABS["paged_kv"]().reproduce_command.split()
        assert command[1 : len(FLAGS) + 1] == list(FLAGS)
        self.compile(*command[len(FLAGS) + 1 :])
        return self.folder / "repro"

    def compile(self, *arguments: str) -> None:
        """Compile with the strict flags; a warning is our fault."""
        done = self.run("gcc", *FLAGS, *arguments)
        assert done.succeeded, done.stderr.decode()

    def run(self, *command: str, library: Path | None = None) -> Completed:
        """Run a command in the folder, with a sample's library."""
        environment = {"PATH": "/usr/bin:/bin"}
        if library is not None:
            environment["LD_LIBRARY_PATH"] = str(library)
        limits = Patience(wall_seconds=30)
        return run(command, cwd=self.folder, limits=limits, environment=environment)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One folder for all tests of this process: samples are compiled once."""
    return Bench(tmp_path_factory.mktemp("repro"))


@pytest.mark.parametrize("task", _TASKS)
def test_programs_are_silent_beside_accepted_samples(bench: Bench, task: str) -> None:
    """Every case up to its end compiles without a warning; the samples' own words on stdout and stderr are theirs."""
    for number, case in enumerate(case for case in _cases().values() if case.name.startswith(f"{task}/")):
        program = bench.program(_program(case))
        for source in _ACCEPTED[number % _SHARERS :: _SHARERS]:
            done = bench.run(str(program), library=bench.library(source))

            assert (case.name, source.parent.name, done.exit_code) == (case.name, source.parent.name, 0), done
            assert b"the handout" not in done.stderr


@pytest.mark.parametrize("source", _ACCEPTED, ids=lambda source: source.parent.name)
def test_the_handouts_command_and_valgrind_are_content(bench: Bench, source: Path) -> None:
    """A case that is cut short leaves nothing behind, by the handout's own command line, under Valgrind."""
    case = list(_cases().values())[_ACCEPTED.index(source) :: len(_ACCEPTED)][0]
    program = bench.linked(_program(case, len(case.trace.operations) // 2), source)

    assert bench.run(*_VALGRIND, str(program)).exit_code == 0


@pytest.mark.parametrize("start", range(4))
def test_every_cut_compiles(bench: Bench, start: int) -> None:
    """A program may end with any operation, a poke among them."""
    for case in list(_cases().values())[start::60]:
        for operation in range(min(len(case.trace.operations) - 1, 7)):
            program = bench.program(_program(case, operation))

            assert bench.run(str(program), library=bench.first).exit_code == 0


@pytest.mark.parametrize("source", _WRONG, ids=lambda source: "/".join(source.parts[-3:-1]))
def test_the_program_fails_where_the_sample_fails(bench: Bench, source: Path) -> None:
    """And on no accepted sample. What only Valgrind sees is asked of Valgrind; programs share the samples for that."""
    record = graded(LABS["paged_kv"]().name, source.parent)
    case, operation = _first_bad(record)
    text = _program(_cases()[case], operation)
    command = [str(bench.linked(text, source))]
    failed = bench.run(*command)
    tool = () if failed.exit_code != 0 else _VALGRIND
    if tool:
        failed = bench.run(*tool, *command)

    assert failed.exit_code != 0, record.diagnosis
    assert not failed.timed_out, "the program must end by itself"
    program = bench.program(text)
    for accepted in _ACCEPTED[_WRONG.index(source) % _SHARERS :: _SHARERS] if tool else _ACCEPTED:
        done = bench.run(*tool, str(program), library=bench.library(accepted))

        assert (accepted.parent.name, done.exit_code) == (accepted.parent.name, 0), done.stderr.decode()


def _first_bad(record: Record) -> tuple[str, int]:
    """Where the diagnosis points: a case, and its operation counted from 0."""
    assert record.diagnosis is not None
    assert record.diagnosis.case is not None
    assert record.diagnosis.operation is not None
    return record.diagnosis.case, record.diagnosis.operation - 1


def test_a_failing_program_says_what_the_handout_wants(bench: Bench) -> None:
    """The operation as in the case file, the handout's sentence, and what came instead."""
    text = _program(_cases()["append/first_append_after_fork_copies"], 3)
    source = _SAMPLES / "wrong_answer" / "no_copy_on_write" / "llm_memory.c"
    done = bench.run(str(bench.linked(text, source)))

    assert done.exit_code == 1
    assert done.stdout == b""
    assert re.sub(r"^repro.c:\d+", "repro.c", done.stderr.decode()).splitlines() == [
        "repro.c: append_kv 2 77 -> 0 (line 10 of the case)",
        "  the handout: Task 4: copy-on-write maps the new block in the appending sequence only",
        "  sequence(engine, 2)->block_table[0][0] is 0, want 1",
    ]


def test_an_endless_loop_ends(bench: Bench) -> None:
    """By an alarm, and the program says in which operation."""
    source = _SAMPLES / "time_limit_exceeded" / "append_waits_for_free_block" / "llm_memory.c"
    case = _cases()["append/no_free_block_for_a_new_page"]
    refused = next(n for n, one in enumerate(case.trace.operations) if one.claim == "-1")
    done = bench.run(str(bench.linked(_program(case, refused), source)))

    assert done.signal == signal.SIGALRM
    assert f"{case.trace.operations[refused]} -> -1" in done.stderr.decode()
    assert "does not come back" in done.stderr.decode()


def test_leaving_the_program_is_no_success(bench: Bench, tmp_path: Path) -> None:
    """A call that ends with exit(0) must not look like silence."""
    source = tmp_path / "llm_memory.c"
    source.write_text(
        "#define append_kv real_append_kv\n"
        f'#include "{_ACCEPTED[0]}"\n'
        "#undef append_kv\n"
        "#include <stdlib.h>\n"
        "int append_kv(LLMEngine *e, int i, int d) { (void)e; (void)i; (void)d; exit(0); }\n"
    )
    text = _program(_cases()["append/first_append_after_fork_copies"], 3)
    done = bench.run(str(bench.program(text)), library=bench.library(source))

    assert done.exit_code == 1
    assert "append_kv 2 77 -> 0 (line 10 of the case): it ends the whole program" in done.stderr.decode()


def test_programs_are_short_and_need_only_the_handouts_header() -> None:
    """At every cut of every case; repeated operations and states are loops."""
    for case in _cases().values():
        for operation in range(len(case.trace.operations))[-12:]:
            text = _program(case, operation)

            assert re.findall(r'#include "(.*)"', text) == ["llm_memory.h"]
            assert text.partition("int main(void)")[2].partition("\n}\n")[0].count("\n") < 200, case.name


def test_what_steps_evenly_is_one_loop() -> None:
    """The loop's variable is a number that goes up by one; the others are written with it."""
    (run,) = fold([(2, 10, 7), (3, 20, 7), (4, 30, 7)], lambda _: "", lambda item: item)

    assert run.folded
    assert run.texts() == ["i", "10 * i - 10", "7"]
    assert list(run.looped(["a(i);"])) == ["for (i = 2; i <= 4; i++)", "    a(i);"]
    assert list(run.looped(["a(i);", "b(i);"]))[-1] == "}"


def test_what_steps_unevenly_is_no_loop() -> None:
    """Nor are two items, items of two shapes, and numbers near the ends of an int."""
    for numbers in ([1, 2, 4], [5, 6], [2**31 - 3, 2**31 - 2, 2**31 - 1]):
        runs = list(fold(numbers, lambda _: "", lambda number: (number,)))

        assert [run.texts() for run in runs] == [[str(number)] for number in numbers]
    assert len(list(fold([1, 2, 3], lambda number: number == 2, lambda number: (number,)))) == 3


def test_text_stays_inside_its_comment_or_string() -> None:
    """Case files are written by people; nothing in them may end a comment or make gcc warn."""
    assert c_comment("a */ b /* c ??/\n d \\") == "a * / b / * c ? ? / d /"
    assert c_string('say "\\" what??/') == r'"say \"\\\" what?\?/"'
    assert c_string("a " * 60, column=5).count('"\n     "') == 1
    assert c_string("") == '""'
    assert "\n     " in c_call("LIST", *map(str, range(60)))
