"""Reports: pure functions of the record. One more format is one more module and one more line in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable

from grader.record import Record, to_json
from grader.report.text import render as text

__all__ = ["FORMATS"]

FORMATS: dict[str, Callable[[Record], str]] = {
    "text": text,
    "json": to_json,
}
