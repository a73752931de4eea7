"""What a shell completes: asked of a real bash, in which the printed text was read."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from grader.assignment import case_files
from grader.bundles.platforms import BUNDLES
from grader.cli.app import COMMANDS
from grader.labs import LABS, open_lab
from grader.report import FORMATS, GRADEBOOKS
from grader.tests.support.command import environment, grade

_ASKED = """
eval "$1"
shift
function=$(complete -p grade | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"$function"
printf '%s\\n' "${COMPREPLY[@]}"
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@pytest.fixture(scope="module")
def script() -> str:
    """What is printed for bash."""
    done = grade("completion", "bash")
    assert done.code == 0
    return done.out


def completed(script: str, *words: str) -> list[str]:
    """What the last word may become."""
    words = ("bash", "-c", _ASKED, "bash", script, "grade", *words)
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment())
    return done.stdout.split()


def test_commands_are_completed(script: str) -> None:
    """All of them, and those that begin so."""
    assert set(COMMANDS) <= set(completed(script, ""))
    assert completed(script, "reg") == ["regrade"]


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (("run", "--format", ""), [*FORMATS, *GRADEBOOKS]),
        (("show", "--format", ""), [*FORMATS]),
        (("pack", ""), [*BUNDLES]),
        (("run", "--lab", "paged"), ["paged_kv"]),
        (("completion", ""), ["bash", "zsh", "tcsh"]),
    ],
)
def test_names_are_completed_to_what_there_is(script: str, words: tuple[str, ...], known: list[str]) -> None:
    """Where a command takes one of a few."""
    assert [name for name in completed(script, *words) if not name.startswith("-")] == known


def test_options_are_completed(script: str) -> None:
    """Those of the command that stands before."""
    assert completed(script, "run", "--without") == ["--without-memory-checker"]
    assert completed(script, "pack", "--repl") == ["--replace"]


def test_cases_are_completed(script: str) -> None:
    """By the beginning of their names."""
    labs = [open_lab(name) for name in LABS]
    cases = [
        case.name for lab in labs for case in case_files.load_folder(lab.cases, lab.grammar, seed=1, pattern="fork/*")
    ]

    assert completed(script, "explain", "fork/") == cases


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_theirs(shell: str) -> None:
    """Their files name all commands."""
    done = grade("completion", shell)

    assert done.code == 0
    assert [name for name in COMMANDS if name not in done.out] == []
