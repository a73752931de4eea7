"""A reproduction runs a program on a device that only writes a log, so it cannot show a race; it says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from grader.assignment.samples import program_of
from grader.tests.labs.offload.sent import SAMPLES
from grader.tests.support.command import ROOT, grade

_DEVICE = ROOT / "grader" / "labs" / "offload" / "given" / "offload_device.py"


def test_a_race_is_a_comment_at_the_end(tmp_path: Path) -> None:
    """With both accesses and their lines; the program itself passes, and the command tells that beforehand."""
    sample = SAMPLES / "wrong_answer" / "marks_done_early"
    done = grade("repro", sample, "runner/ring_of_two")
    (tmp_path / "repro.py").write_text(done.out, encoding="utf-8")
    (tmp_path / "offload.py").write_bytes(program_of(sample, "offload.py"))
    shutil.copy(_DEVICE, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "repro.py"]
    alone = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    comment = " ".join(line.strip("# ") for line in done.out.splitlines()[-8:] if line.startswith("    # "))

    assert "The program passes: only the grader sees what went wrong" in done.err
    assert "load of layer 2 into buffer 0 (stream 'keys', line 164)" in comment
    assert "may run before attention (stream 'main', line 317)" in comment
    assert alone.returncode == 0


def test_what_a_program_shows_itself_needs_no_comment() -> None:
    """As a wrong queue, which it reads and compares."""
    done = grade("repro", SAMPLES / "wrong_answer" / "counted_token", "manager/one_block_each")

    assert "assert plain(free_blocks()) == [4, 3, 2, 1]" in done.out
    assert "The grader saw" not in done.out
    assert "It passes" not in done.err
