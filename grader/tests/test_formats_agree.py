"""All formats say the same of labelled samples, each read by who really reads it.

Here of every third one; `python -m grader.tests.trials.all_reports` reads the reports of all.
"""

from __future__ import annotations

import pytest

from grader.labs.paged_kv.lab import lab
from grader.tests.support.agreeing import books_agree, formats_agree
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import all_graded

pytestmark = pytest.mark.all_samples
_FOLDERS = sorted(path for path in SAMPLES.glob("*/*") if path.is_dir())[::3]
_AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, len(_FOLDERS), _AT_ONCE), ids=lambda first: _FOLDERS[first].name)
def test_all_formats_agree(first: int) -> None:
    """Score, points of each rule, passed or not; and each is well-formed for its reader."""
    records = all_graded(lab().name, _FOLDERS[first : first + _AT_ONCE])
    for record in records:
        formats_agree(record)
    books_agree(records)
