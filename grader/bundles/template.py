"""Files of a bundle made from those beside this module."""

from __future__ import annotations

from pathlib import Path

from grader.assignment.lab import Lab
from grader.bundles.bundle import File

__all__ = ["FOLDER", "filled", "slug"]

FOLDER = "grading"
"""Where the grader lies in a bundle for students."""


def filled(template: str, name: str, lab: Lab, *, runs: bool = False) -> File:
    """A file from one beside this module, in which `@LAB@` and the like stand for what a lab says."""
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    words = {"LAB": lab.name, "TITLE": lab.title, "SOURCE": lab.source_name, "FOLDER": FOLDER, "SLUG": slug(lab)}
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return File(name=name, content=text.encode(), runs=runs)


def slug(lab: Lab) -> str:
    """Its name as platforms write names in addresses."""
    return lab.name.replace("_", "-")
