"""The autograder for Gradescope: a zip with the grader's files, and two scripts at its root.

`setup.sh` runs once, as root and with network, when Gradescope builds the image from the zip. `run_autograder` runs for
each submission, as root; it must work without network. These two scripts define everything that is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.assignment.lab import Lab
from grader.bundles.bundle import Bundle, File, zipped
from grader.bundles.template import filled
from grader.bundles.tree import tree
from grader.core.case import Case

_SCRIPTS = {"setup.sh": "gradescope_setup.sh", "run_autograder": "gradescope_run.sh"}
"""The scripts: their names in the zip, which Gradescope prescribes, and their templates in this folder."""


def _make(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    scripts = [filled(here, name, lab, runs=True) for name, here in _SCRIPTS.items()]
    yield File(name="gradescope.zip", content=zipped([*scripts, *tree(lab, cases)]))


BUNDLE = Bundle(
    what="a zip to upload as an autograder, hidden cases and all",
    make=_make,
    then="upload gradescope.zip at Configure Autograder; it holds the hidden cases, so keep it to yourselves",
)
