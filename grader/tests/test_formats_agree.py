"""All formats say the same of labelled samples, each read by who really reads it.

`python -m grader.tests.trials.all_reports` reads the reports of all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.labs.paged_kv.lab import lab
from grader.tests.support.agreeing import books_agree, formats_agree
from grader.tests.support.graded import all_graded

_PARTS = 4


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(_PARTS))
def test_all_formats_agree(part: int, samples_of: Callable[[str], list[Path]]) -> None:
    """Score, points of each rule, passed or not; and each is well-formed for its reader."""
    records = all_graded(lab().name, samples_of(lab().name)[part::_PARTS])
    for record in records:
        formats_agree(record)
    books_agree(records)
