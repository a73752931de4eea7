"""Make files of a bundle from the templates beside this module."""

from __future__ import annotations

from pathlib import Path

from grader.assignment.lab import Lab
from grader.bundles.bundle import File

__all__ = ["FOLDER", "filled", "slug"]

FOLDER = "grading"
"""The folder of the grader in a bundle for students."""


def filled(template: str, name: str, lab: Lab, *, runs: bool = False) -> File:
    """Return a file made from a template beside this module: a lab's values replace `@LAB@` and the like."""
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    words = {"LAB": lab.name, "TITLE": lab.title, "SOURCE": lab.source_name, "FOLDER": FOLDER, "SLUG": slug(lab)}
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return File(name=name, content=text.encode(), runs=runs)


def slug(lab: Lab) -> str:
    """Return the name of a lab in the form that platforms use in URLs."""
    return lab.name.replace("_", "-")
