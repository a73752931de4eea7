"""Nothing beside a submission is run or imported: no Python of ours looks for modules where the caller stands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.tests.support.chosen import few
from grader.tests.support.command import FEW, ROOT, SAMPLES, environment
from grader.tests.support.decoy_modules import imported_beside, put_modules_beside

_STARTED = re.compile(r'(?:python3|python|with_pip|candidate|"\$1")"? (-(?:I|[a-z]\b|-?[a-z]+).*)')
_SCRIPTS = sorted(
    path
    for folder in (ROOT / "scripts", ROOT / "grader" / "bundles")
    for path in folder.iterdir()
    if path.is_file() and path.suffix in ("", ".sh", ".yml")
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A right program and a class of one, where the caller stands."""
    for place in ("checkout", "checkout/class/alice"):
        shutil.copytree(SAMPLES / "accepted" / "yoda_crlf", tmp_path / place)
    return tmp_path / "checkout"


@pytest.mark.parametrize("script", _SCRIPTS, ids=lambda path: path.name)
def test_every_python_of_a_script_is_isolated(script: Path) -> None:
    """Wherever one is started with a module, a program or its input."""
    started = _STARTED.findall(script.read_text(encoding="utf-8"))

    assert [words for words in started if not words.startswith(("-I ", "--version"))] == []


def test_nothing_is_built_that_pip_installs() -> None:
    """A package that is built runs code of its own; only our own, from our own clone, is."""
    installs = [
        line
        for path in _SCRIPTS
        for line in path.read_text(encoding="utf-8").splitlines()
        if "pip install" in line and not line.lstrip().startswith("#")
    ]

    assert len(installs) == 3
    assert [line for line in installs if "--only-binary=:all:" not in line and '--editable "$root"' not in line] == []


def test_the_scripts_start_pythons() -> None:
    """The search above finds some."""
    assert sum(len(_STARTED.findall(path.read_text(encoding="utf-8"))) for path in _SCRIPTS) > 15


@pytest.mark.parametrize(
    "arguments",
    few([("run", ".", *FEW), ("batch", "class", "--jobs", "2", *FEW), ("doctor",)], 2),
    ids=lambda arguments: arguments[0],
)
def test_no_module_beside_a_submission_is_imported(checkout: Path, arguments: tuple[str, ...]) -> None:
    """By the grader and the processes that it starts; what sets up is tried by bundles_set_up.py."""
    put_modules_beside(checkout)
    done = subprocess.run(
        ["sh", ROOT / "scripts" / "grade", *arguments],
        cwd=checkout,
        env={name: value for name, value in environment().items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr.count(b"Traceback")) == (0, 0), done.stderr.decode()
    assert imported_beside(checkout) == []


def test_the_modules_are_found_by_a_python_that_is_not_isolated(checkout: Path) -> None:
    """Else this would test nothing."""
    put_modules_beside(checkout)
    subprocess.run([sys.executable, "-c", "import fcntl, shlex"], cwd=checkout, capture_output=True, check=False)

    assert imported_beside(checkout)
