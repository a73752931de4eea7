"""`grade schema`: the JSON schema of the result record."""

from __future__ import annotations

import json
import sys

from grader.core import record
from grader.core.errors import ExitCode


def schema() -> ExitCode:
    """Print the JSON schema that every `--format json` report obeys."""
    sys.stdout.write(json.dumps(record.schema(), indent=1) + "\n")
    return ExitCode.ACCEPTED
