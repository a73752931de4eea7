"""Gradescope's autograder in a tree like its container's: as root, without network and namespaces, with a few cases.

The whole life with its image, all cases and figures: `python -m grader.tests.trials.gradescope_life`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.assignment import case_files
from grader.bundles import BUNDLES
from grader.labs import open_lab
from grader.system.confine.launcher import user_of_this_process
from grader.tests.support.autograder import Autograder, unpacked
from grader.tests.support.command import SAMPLES, environment, tools
from grader.tests.support.confined import as_root
from grader.tests.support.offline import CAN

RIGHT = SAMPLES / "accepted" / "yoda_crlf"
HANGS = SAMPLES / "time_limit_exceeded" / "append_waits_for_free_block"
OFFLINE = (sys.executable, "-m", "grader.tests.support.offline")

pytestmark = [as_root, pytest.mark.skipif(not CAN, reason="system calls of this machine are not known")]


@pytest.fixture(scope="module")
def made() -> Iterator[Autograder]:
    """The container after its image was built. In the place of `setup.sh`: this Python, with the bundle's own files."""
    place = Path(tempfile.mkdtemp(prefix="container-"))
    place.chmod(0o755)  # as everybody may look into a container's root; pytest's own folders are shut
    lab = open_lab("paged_kv")
    cases = case_files.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed, pattern="append/copy_*")
    cases += case_files.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed, pattern="append/no_free*")
    (bundle,) = BUNDLES["gradescope"].make(lab, cases)
    box = unpacked(bundle.content, place / "autograder")
    programs = box.source / ".venv" / "bin"
    programs.mkdir(parents=True)
    python = f'#!/bin/sh\nPYTHONPATH="{box.source}" exec "{sys.executable}"'
    for name, words in {"python": "", "grade": "-P -m grader"}.items():
        (programs / name).write_text(f'{python} {words} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    yield box
    shutil.rmtree(place)


@pytest.fixture
def box(made: Autograder) -> Autograder:
    """The same, with nothing handed in."""
    made.hand_in()
    return made


def start(box: Autograder, path: str | None = None) -> subprocess.Popen[bytes]:
    """What Gradescope does for a submission, but without network."""
    return subprocess.Popen(
        [*OFFLINE, box.program],
        env=environment(PATH=path or os.environ["PATH"]),
        cwd=box.place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def graded(box: Autograder, *sources: Path, inside: str = ".", path: str | None = None) -> tuple[dict[str, Any], str]:
    """What Gradescope reads after its end, and what the staff sees besides."""
    box.hand_in(*sources, inside=inside)
    process = start(box, path)
    said, _ = process.communicate(timeout=100)

    assert process.returncode == 0
    return box.read(), said.decode()


def without_points(results: dict[str, Any]) -> bool:
    """Gradescope calls that a failed autograder: neither points of its own nor of tests."""
    return not {"score", "tests"} & results.keys()


def test_nothing_of_it_reaches_the_network() -> None:
    """What these tests start cannot connect where others can."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=5)"
        ends = [
            subprocess.run([*around, sys.executable, "-c", words], capture_output=True, check=False, env=environment())
            for around in ((), OFFLINE)
        ]

    assert [end.returncode for end in ends] == [0, 1]
    assert b"Operation not permitted" in ends[1].stderr


def test_a_right_program_has_all_points(box: Autograder) -> None:
    """In a repository; nobody is told anything on stdout, and what protects us is in the report."""
    results, said = graded(box, RIGHT, inside="kv-homework/src")

    assert results["score"] == sum(test["max_score"] for test in results["tests"]) > 0
    assert {test["status"] for test in results["tests"]} == {"passed"}
    assert (results["extra_data"]["verdict"], results["extra_data"]["complete"]) == ("accepted", True)
    assert "unprivileged user" in results["output"]
    assert "bubblewrap" not in results["output"]
    assert said == ""


def test_student_code_reads_nothing_of_the_autograder(box: Autograder) -> None:
    """Neither as the user that it is, nor by what the sandbox lets through; its forged results count for nothing."""
    secrets = [box.source / "cases" / "paged_kv" / "rubric.toml", box.place / "submission_metadata.json"]
    box.hand_in(SAMPLES / "wrong_answer" / "hostile_reads_files_by_system_calls")
    box.source.chmod(0o755)
    before = [_can_read(path) for path in secrets]
    source = box.place / "submission" / "llm_memory.c"
    text = source.read_text(encoding="utf-8")
    for known, path in zip(('"/etc/passwd"', '"/etc/shadow"'), secrets, strict=True):
        assert known in text
        text = text.replace(known, f'"{path}"')
    source.write_text(text, encoding="utf-8")
    start(box).communicate(timeout=60)
    results = box.results.read_text(encoding="utf-8")

    assert before == [True, True]
    assert [_can_read(path) for path in (*secrets, box.results)] == [False, False, False]
    assert "HOSTILE-GOT" not in results.replace("HOSTILE-GOT %s", "")
    assert box.read()["score"] == 0


def _can_read(path: Path) -> bool:
    user = user_of_this_process()
    look = subprocess.run(["cat", path], user=user, group=user, extra_groups=[], capture_output=True, check=False)
    return look.returncode == 0


def test_forged_results_count_for_nothing(box: Autograder) -> None:
    """Whatever a program prints, and to whatever descriptor."""
    results, _ = graded(box, SAMPLES / "wrong_answer" / "hostile_prints_forged_results_everywhere")

    assert results["score"] == 0
    assert results["extra_data"]["verdict"] == "wrong_answer"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_grading_that_is_ended_has_no_points(box: Autograder, number: signal.Signals) -> None:
    """By Gradescope's time limit, or the grader alone by a kernel without memory."""
    box.hand_in(HANGS)
    process = start(box)
    _wait(lambda: "extra_data" in json.loads(box.results.read_text(encoding="utf-8")), process)
    if number == signal.SIGTERM:
        process.send_signal(number)
    else:
        os.kill(_grader(box), number)
    process.communicate(timeout=30)
    results = box.read()

    assert process.returncode == 0
    assert without_points(results)
    assert "Grading was interrupted" in results["output"]


def test_our_own_fault_costs_nobody_a_point(box: Autograder, tmp_path: Path) -> None:
    """The student learns whose fault it is, the staff what happened."""
    needed = ("bash", "sh", "chmod", "mkdir", "mv", "cat", "rm", "mktemp")
    results, said = graded(box, RIGHT, path=tools(tmp_path / "few", *needed))

    assert without_points(results)
    assert "not your fault" in results["output"]
    assert "gcc is not installed" in said
    assert "gcc" not in results["output"]


def _grader(box: Autograder) -> int:
    """The number of the grader's process, which the script waits for."""
    end = f"--output\0{box.results}\0".encode()
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes().endswith(end):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    (number,) = (number for number, parent in parents.items() if parent not in parents)  # not one that it starts
    return number


def _wait(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while not _soon(happened):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.002)


def _soon(happened: Callable[[], bool]) -> bool:
    try:
        return happened()
    except FileNotFoundError:
        return False
