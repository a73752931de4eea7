"""What stands beside the reports: complaints, in whose log. In that of a GitHub workflow a line can be a command."""

from __future__ import annotations

import os
import sys

__all__ = ["complain", "in_workflow"]


def in_workflow() -> bool:
    """Does a runner of GitHub read what we print?"""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def complain(text: str) -> None:
    """Write a message to stderr; the names in it may be a student's."""
    from grader.report.document import as_log
    from grader.report.escape import escape_lines

    shown = "\n".join(escape_lines(f"grade: {text}")) + "\n"
    sys.stderr.write(as_log(shown) if in_workflow() else shown)
