"""Accepted samples stay accepted with other compilers and with the hardening that distributions build in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.labs.paged_kv.lab import lab
from grader.system import resources, sandbox
from grader.tests.support.programs import ACCEPTED, first_case, graded_text, right

_UBUNTU = (
    *("-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection"),
    *("-Wformat", "-Wformat-security", "-fPIE"),
)
_OTHERS = [
    name
    for major in range(10, 17)
    if shutil.which(name := f"gcc-{major}") and f" {major}." not in resources.version("gcc")
]


_FEW = 3
"""So many accepted samples are tried by scripts/test."""


@pytest.fixture(params=["ubuntu", *_OTHERS])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A `gcc` before the system's: another one, or the same with Ubuntu's defaults. Everything is built with it."""
    real, options = ("gcc", " ".join(_UBUNTU)) if request.param == "ubuntu" else (request.param, "")
    usual = sandbox._environment
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to the user whom the compiler runs as
        Path(folder).chmod(0o755)
        wrapper = Path(folder, "gcc")
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which(real)} {options} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
        monkeypatch.setattr(sandbox, "_environment", lambda folder: usual(folder) | {"PATH": path})
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        resources.version.cache_clear()
        yield request.param
        resources.version.cache_clear()


def test_every_accepted_sample_has_all_points(compiler: str, pytestconfig: pytest.Config) -> None:
    """Under Valgrind too, without a single finding; a program that only this compiler accepts shows it was used."""
    chosen = lab()
    used = "_FORTIFY_SOURCE == 3" if compiler == "ubuntu" else f"__GNUC__ == {compiler.removeprefix('gcc-')}"
    assert graded_text(f"{right()}\n#if !({used})\n#error another compiler\n#endif\n", first_case()).findings == ()
    cases = case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed)

    for sample in ACCEPTED if pytestconfig.getoption("--all-samples") else ACCEPTED[:_FEW]:
        record = pipeline.grade(sample, chosen, cases)

        assert (sample.name, record.score, record.findings) == (sample.name, 100, ())
