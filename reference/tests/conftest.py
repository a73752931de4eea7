"""The marker by which a test names the sentences of the handout that it tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make `handout` known, since unknown markers are errors here."""
    config.addinivalue_line("markers", "handout(*clauses): the clauses of handout.toml that a test is about")
