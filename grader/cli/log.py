"""Error messages, and whether they go to the log of a GitHub workflow, in which a line can be a command."""

from __future__ import annotations

import os
import sys


def in_workflow() -> bool:
    """Whether a runner of GitHub reads the output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def complain(text: str) -> None:
    """Write an error message to stderr. It is escaped: names in it may come from a student."""
    from grader.report.document import as_log
    from grader.report.escape import escape_lines

    shown = "\n".join(escape_lines(f"grade: {text}")) + "\n"
    sys.stderr.write(as_log(shown) if in_workflow() else shown)
