"""What students get of the grader: all of it, with the public cases only.

In the place of the hidden cases stands a file that says what they weigh. Where it is, `--public-only` is implied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from grader.deploy.bundle import File
from grader.deploy.tree import tree
from grader.grammar import Case
from grader.lab import Lab
from grader.part import HIDDEN_FILE, given, hidden_text, weights
from grader.verdict import Visibility

__all__ = ["FOLDER", "filled", "public_tree", "slug"]

FOLDER = "grading"
"""Where the grader lies in a bundle for students."""


def public_tree(lab: Lab, cases: Sequence[Case], folder: str = FOLDER) -> Iterator[File]:
    """Our own files below `folder` of a bundle. The cases may have hidden ones among them."""
    public = [case for case in cases if case.visibility is Visibility.PUBLIC]
    known = given(lab)  # whoever packs may have no hidden cases either
    text = hidden_text(weights(lab.rubric, cases) if known is None else known)
    name = (lab.cases / HIDDEN_FILE).relative_to(lab.cases.parents[1]).as_posix()
    for file in [*tree(lab, public), File(name=name, content=text.encode())]:
        yield replace(file, name=f"{folder}/{file.name}")


def filled(template: str, name: str, lab: Lab, *, runs: bool = False) -> File:
    """A file of a bundle from one beside this module, in which `@LAB@` and the like stand for what a lab says."""
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    words = {"LAB": lab.name, "TITLE": lab.title, "SOURCE": lab.source_name, "FOLDER": FOLDER, "SLUG": slug(lab)}
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return File(name=name, content=text.encode(), runs=runs)


def slug(lab: Lab) -> str:
    """Its name as platforms write names in addresses."""
    return lab.name.replace("_", "-")
