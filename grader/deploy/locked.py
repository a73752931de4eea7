"""The part of our lock that grading needs: mypy and its like in an autograder's image would be waste.

uv writes behind each locked package who asked for it; that is the graph of dependencies, and no tool is needed for it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator

__all__ = ["needed"]

_BOOTSTRAP = "bootstrap"
"""The dependency group that scripts/setup fetches where a machine has no pip, or too old a Python."""


def needed(lock: str, project: str) -> str:
    """The entries of a lock that the packages asked for by a pyproject.toml need, as they stand in it.

    Those are the dependencies of the project itself, its build backend and what set-up may have to fetch.
    """
    head, *entries = re.split(r"^(?=[\w.-]+(?:\[[\w,-]+\])?==)", lock, flags=re.MULTILINE)
    asked_by = {_name(entry): set(_asking(entry)) for entry in entries}
    kept = {name for name in _roots(project) if name in asked_by}
    while more := {name for name, who in asked_by.items() if who & kept} - kept:
        kept |= more
    return head + "".join(entry for entry in entries if _name(entry) in kept)


def _roots(project: str) -> Iterator[str]:
    read = tomllib.loads(project)
    lists: Iterable[list[str]] = (
        read["build-system"]["requires"],
        read["project"]["dependencies"],
        read["dependency-groups"][_BOOTSTRAP],
    )
    for requirements in lists:
        yield from map(_name, requirements)


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower()


def _asking(entry: str) -> Iterator[str]:
    """Names behind `# via`, in its line or in the lines below."""
    comments = re.findall(r"^ +# +(?:via +)?([\w.-]+)(?: |$)", entry, re.MULTILINE)
    yield from (name.lower() for name in comments if name != "via")
