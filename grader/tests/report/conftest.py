"""What tests of web pages share: one browser for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grader.tests.support.browser import Browser, chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests of a module."""
    path = chromium()
    assert path is not None
    with Browser(path, tmp_path_factory.mktemp("chromium")) as started:
        yield started
