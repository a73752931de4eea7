"""The grader as students get it: with the public cases only, and without an oracle that is nearly the solution.

A file with the weights of the hidden cases replaces these cases. Where this file exists, `--public-only` is implied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grader.assignment.case_selection import HIDDEN_FILE, hidden_text, hidden_weights, weights
from grader.assignment.lab import Lab
from grader.bundles.bundle import File
from grader.bundles.template import FOLDER
from grader.bundles.tree import tree
from grader.core.case import Case
from grader.core.verdict import Visibility
from grader.judge.recorded import FILE, recorded


def public_tree(lab: Lab, cases: Sequence[Case], folder: str = FOLDER) -> Iterator[File]:
    """Yield the grader's files, below `folder` of a bundle. The cases may include hidden ones, which are left out."""
    public = [case for case in cases if case.visibility is Visibility.PUBLIC]
    known = hidden_weights(lab)  # the copy that makes the bundle may have no hidden cases either
    text = hidden_text(weights(lab.rubric, cases) if known is None else known)
    name = (lab.cases / HIDDEN_FILE).relative_to(lab.cases.parents[1]).as_posix()
    files = [*tree(lab, public, without=lab.oracle_files), File(name=name, content=text.encode())]
    if lab.oracle_files:
        place = (lab.cases / FILE).relative_to(lab.cases.parents[1]).as_posix()
        files.append(File(name=place, content=recorded(public, lab.model)))
    for file in files:
        yield replace(file, name=f"{folder}/{file.name}")
