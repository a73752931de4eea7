"""Where no browser is, nobody believes that the web pages were looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from grader.tests.support.command import ROOT


def test_what_no_browser_looked_at_is_said_at_the_end(tmp_path: Path) -> None:
    """Below the list of what was skipped, the last thing but pytest's own count."""
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "grader/tests/report/test_web_pages.py",
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    *_, said, count = ended.stdout.splitlines()

    assert said == f"{count.split()[0]} browser tests were skipped: no Chromium"
    assert int(count.split()[0]) > 0
