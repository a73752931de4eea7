"""`grade` as it is typed: what it prints, what it exits with, and that it leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from grader.cli.options import lab_of_class
from grader.core.record import Record, from_json
from grader.core.verdict import Tool, Verdict
from grader.tests.support.command import FEW, ROOT, SAMPLES, Said, command, environment, grade, tools

RIGHT = SAMPLES / "accepted" / "yoda_crlf"
WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
BROKEN = SAMPLES / "compile_error" / "sign_compare"
COMMANDS = ("run", "cases", "explain", "repro", "doctor", "schema")
BINUTILS = ("gcc", "objcopy", "addr2line", "readelf", "as", "ld")


@cache
def ran(*arguments: str | Path) -> Said:
    """What a command says; each is run once for all tests."""
    return grade(*arguments)


def records(text: str) -> list[Record]:
    """The JSON records in a text, one after the other."""
    found, decoder = [], json.JSONDecoder()
    while text.strip():
        value, end = decoder.raw_decode(text.lstrip())
        found.append(from_json(json.dumps(value)))
        text = text.lstrip()[end:]
    return found


def test_all_accepted_is_0() -> None:
    """The report is printed, and stderr stays empty where it is no terminal."""
    said = ran("run", RIGHT, *FEW)

    assert (said.code, said.err) == (0, "")
    assert "accepted" in said.out


def test_a_zip_is_opened(tmp_path: Path) -> None:
    """As in a class; an archive of another kind is no submission of 0 points."""
    zipped = Path(shutil.make_archive(str(tmp_path / "jane"), "zip", RIGHT))
    other = Path(shutil.make_archive(str(tmp_path / "bob"), "gztar", RIGHT))

    assert grade("run", zipped, *FEW).code == 0
    said = grade("run", other, "--lab", "paged_kv", *FEW)
    assert (said.code, "an archive of this kind is not opened" in said.err) == (2, True)
    for archive, code in ((zipped, 0), (other, 2)):
        (tmp_path / archive.suffix).mkdir()
        archive.rename(tmp_path / archive.suffix / archive.name)
        assert grade("run", tmp_path / archive.suffix, "--lab", "paged_kv", *FEW).code == code


def test_a_choice_of_cases_may_be_worth_nothing() -> None:
    """Of one public case without the hidden ones only the build may have points."""
    said = grade("run", RIGHT, "--case", "append/record_zero", "--public-only")

    assert (said.code, "accepted, public part: 4 of 4 points" in " ".join(said.out.split())) == (0, True), said.all


def test_the_lab_of_zips_is_found_however_their_names_end(tmp_path: Path) -> None:
    """Windows writes .ZIP too, and the batch takes it; a damaged zip in a zip is reported by the batch."""
    (tmp_path / "class").mkdir()
    shutil.make_archive(str(tmp_path / "jane"), "zip", RIGHT)
    (tmp_path / "jane.zip").rename(tmp_path / "class" / "jane.ZIP")
    with zipfile.ZipFile(tmp_path / "class" / "kim.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("hw.zip", b"x" * 100)
    damaged = bytearray((tmp_path / "class" / "kim.zip").read_bytes())
    damaged[36:40] = b"\xff" * 4
    (tmp_path / "class" / "kim.zip").write_bytes(damaged)

    assert lab_of_class(tmp_path / "class") == "paged_kv"


def test_a_folder_that_is_gone_is_no_fault_of_the_grader(tmp_path: Path) -> None:
    """As where git or an editor has replaced it under a shell that stands in it."""
    words = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *command("run", ".")]
    (tmp_path / "gone").mkdir()
    ended = subprocess.run(words, cwd=tmp_path / "gone", env=environment(), capture_output=True, check=False)

    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b"grade: the folder where you are was removed or replaced; cd into it again\n"


def test_something_not_accepted_is_1() -> None:
    """Wrong, or not even compiled."""
    wrong, broken = ran("run", WRONG, *FEW), ran("run", BROKEN, *FEW)

    assert (wrong.code, broken.code) == (1, 1)
    assert "cases/paged_kv/append/copy_" in wrong.out
    assert "-Werror=sign-compare" in broken.out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_an_example(name: str) -> None:
    """`-h` is the same."""
    said = ran(name, "--help")
    examples = [line.strip() for line in said.out.splitlines() if line.strip().startswith(f"grade {name}")]

    assert (said.code, said.err) == (0, "")
    assert examples or name in ("doctor", "schema")
    assert grade(name, "-h").out == said.out


def test_help_names_every_command() -> None:
    """And without a command it is help that comes."""
    assert all(name in ran("--help").out for name in COMMANDS)
    assert "Usage" in grade().all


def test_the_version_is_the_projects() -> None:
    """As pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert grade("--version") == Said(code=0, out=f"{project['name']} {project['version']}\n", err="")
    assert "--version" in ran("--help").out


def test_cases_lists_them() -> None:
    """All, or those that fit."""
    names = [f"{path.parent.name}/{path.stem}" for path in (ROOT / "cases" / "paged_kv").glob("*/*.toml")]
    every, some = ran("cases").out, ran("cases", "--case", "append/*").out

    assert [name for name in names if f" {name} " not in every] == []
    assert "append/copy_takes_all_64_bytes" in some
    assert "create/one_record" not in some


def test_explain_draws_each_operation() -> None:
    """A case is found by its name, the end of its name and its path."""
    said = ran("explain", "append/first_append_after_fork_copies")
    path = ROOT / "cases" / "paged_kv" / "append" / "first_append_after_fork_copies.toml"

    assert said.code == 0
    assert "4  append_kv 2 77 -> 0" in said.out
    assert said.out.count("changed: ") == 4  # by llm_init all is new
    assert "changed: block 0, block 1, sequence 2, sequence 2: block_table[0], free_local_blocks" in said.out
    assert "rule cow" in said.out
    assert grade("explain", "first_append_after_fork_copies") == said
    assert grade("explain", path) == said


def test_repro_writes_a_program() -> None:
    """Of a right submission there is nothing to write, which is no error."""
    wrong = ran("repro", WRONG, "append/copy_takes_all_64_bytes", "--without-memory-checker")
    right = ran("repro", RIGHT, "--without-memory-checker", "append/copy_takes_all_64_bytes")

    assert wrong.code == 0
    assert "int main(void)" in wrong.out
    assert (right.code, right.out) == (0, "")
    assert "nothing fails here" in right.err


def test_without_valgrind(tmp_path: Path) -> None:
    """It can be installed, or done without, which record and report then say."""
    path = {"PATH": tools(tmp_path / "bin", *BINUTILS)}
    refused = grade("run", RIGHT, *FEW, variables=path)
    text = grade("run", RIGHT, *FEW, "--without-memory-checker", variables=path)
    (record,) = records(grade("run", RIGHT, *FEW, "--without-memory-checker", "--format", "json", variables=path).out)
    looked = grade("doctor", variables=path)

    assert (refused.code, refused.out) == (3, "")
    assert "valgrind is not installed. Install it with:" in refused.err
    assert "--without-memory-checker" in refused.err
    assert text.code == 0
    assert "Valgrind did not run" in text.out
    assert (record.verdict, record.environment.used(Tool.MEMORY_CHECKER)) == (Verdict.ACCEPTED, None)
    assert looked.code == 3
    assert "valgrind libc6-dbg" in looked.out or "install" in looked.out


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A TMPDIR in which another user may work; pytest's own folders are closed."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def working_in(folder: Path) -> list[int]:
    """Processes whose working folder lies there."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_130_and_leaves_nothing(temporary: Path, number: signal.Signals) -> None:
    """No process, no folder, no traceback: one line."""
    source = "".join(f"#define A{i} A{i - 1} A{i - 1} A{i - 1} A{i - 1}\n" for i in range(1, 16))
    (temporary / "slow").mkdir()
    (temporary / "slow" / "llm_memory.c").write_text(f"#define A0 int x;\n{source}A15\n", encoding="utf-8")
    process = subprocess.Popen(
        command("run", temporary / "slow"),
        cwd=ROOT,
        env=environment(TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 20
    while not working_in(temporary) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (130, b"", b"grade: interrupted\n")
    deadline = time.monotonic() + 20
    while working_in(temporary) and time.monotonic() < deadline:
        time.sleep(0.01)  # beside other work the kernel takes a moment to end killed processes
    assert working_in(temporary) == []
    assert [path.name for path in temporary.iterdir()] == ["slow"]


def test_the_option_shows_advice_in_the_report() -> None:
    """Under its own heading, which says that it costs nothing; without the option there is none."""
    sample = SAMPLES / "accepted" / "scratch_array_one_pass"
    with_advice, without = grade("run", sample, *FEW, "--advice"), grade("run", sample, *FEW)

    assert with_advice.code == without.code == 0
    assert "Costs no point." in with_advice.out
    assert "create_sequence allocates memory here" in with_advice.out
    assert "Advice" not in without.out
