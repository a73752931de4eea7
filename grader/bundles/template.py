"""Make files of a bundle from the templates beside this module."""

from __future__ import annotations

import json
from pathlib import Path

from grader.assignment.lab import Lab
from grader.bundles.bundle import File

FOLDER = "grading"
"""The folder of the grader in a bundle for students."""


_PACKAGES = ("gcc", "libc6-dev", "python3-venv")
"""Debian's packages for any lab: the sandbox's launcher is compiled once, and the grader has its own environment."""


def filled(template: str, name: str, lab: Lab, *, runs: bool = False) -> File:
    """Return a file made of a template beside this module: a lab's values replace `@LAB@` and similar placeholders.

    Where there is a template of that name for the lab's language, such as `starter_readme_python.md`, it is used.
    """
    here = Path(__file__).with_name(template)
    own = here.with_name(f"{here.stem}_{lab.runtime.language}{here.suffix}")
    text = (own if own.is_file() else here).read_text(encoding="utf-8")
    words = {
        "LAB": lab.name,
        "TITLE": lab.title,
        "SOURCE": lab.source_name,
        "FOLDER": FOLDER,
        "SLUG": slug(lab),
        "PACKAGES": " ".join([*_PACKAGES, *lab.runtime.packages]),
        "APT": json.dumps(list(lab.runtime.packages)),
        "REPRO": lab.reproduce_command,
    }
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return File(name=name, content=text.encode(), runs=runs)


def slug(lab: Lab) -> str:
    """Return the name of a lab in the form that platforms use in URLs."""
    return lab.name.replace("_", "-")
