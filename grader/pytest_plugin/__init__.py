"""A pytest plugin that shows cases and labelled submissions as test items.

`pytest cases --submission PATH` grades one submission once and shows each case with its result. Without the option each
case is an item that accepted samples must pass. Labelled submissions below `submissions/` are items that must get their
verdicts: the covering set (covering.toml), with `--all-samples` all of them, and those below a path given to pytest.

Every pytest run in this environment loads this module, even if it tests something else. So the grader is imported only
when the first case or labelled submission is found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDERS = {Path(__file__).parents[2] / name for name in ("cases", "submissions")}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options --submission, which names a submission to grade, and --all-samples."""
    group = parser.getgroup("grader")
    group.addoption(
        "--submission",
        metavar="PATH",
        default=None,
        help="grade this submission and show each case as an item",
    )
    group.addoption(
        "--all-samples",
        action="store_true",
        help="run thorough tests too, and grade all labelled samples with all random traces",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register a marker for tests that take long."""
    config.addinivalue_line("markers", "thorough: takes long, or is about all samples; run only with --all-samples")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests with the marker for long tests, unless `--all-samples` is given."""
    if not config.getoption("--all-samples"):
        thorough = {item for item in items if item.get_closest_marker("thorough")}
        config.hook.pytest_deselected(items=thorough)
        items[:] = [item for item in items if item not in thorough]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect case files below `cases/LAB/` and labelled submissions below `submissions/LAB/VERDICT/`."""
    if _FOLDERS.isdisjoint(file_path.parents):
        return None
    from grader.pytest_plugin.items import collector  # noqa: PLC0415 - slow to import

    return collector(file_path, parent)
