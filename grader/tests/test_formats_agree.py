"""All formats say the same of labelled samples, each read by who really reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.labs import LABS
from grader.tests.support.agreeing import books_agree, formats_agree
from grader.tests.support.graded import all_graded

_SHARE = 5


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("lab_name", LABS)
def test_all_formats_agree(lab_name: str, samples_of: Callable[[str], list[Path]], pytestconfig: pytest.Config) -> None:
    """Score, points of each rule, passed or not; and each is well-formed for its reader. Some of those that cover."""
    samples = samples_of(lab_name)
    records = all_graded(lab_name, samples if pytestconfig.getoption("--all-samples") else samples[::_SHARE])
    for record in records:
        formats_agree(record)
    books_agree(records)
