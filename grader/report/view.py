"""For whom and where a report is shown."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """For whom and where a report is shown. Students do not see what hidden cases do."""

    instructor: bool = False
    width: int = 100
    colour: bool = False
    workflow: bool = False
    """In the log of a GitHub workflow, where a line can be a command?"""
