"""What a shell completes: asked of a real bash, in which the printed text was read."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from grader.cli.app import COMMANDS
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
