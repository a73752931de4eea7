"""The numbers of Homework 3 stand in one file, and everything that is written for a reader has them filled in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from grader.assignment import case_files, stored
from grader.classroom import workers
from grader.labs.paged_kv.lab import lab
from grader.system import process
from grader.system.process_tree import Patience
from reference.paged_kv import constants
from reference.paged_kv.constants import CONSTANTS, HEADER


def test_the_reference_has_the_numbers_of_the_header(tmp_path: Path) -> None:
    """Those that gcc sees in it: the driver and every submission are compiled with it."""
    (tmp_path / "numbers.c").write_text(f'#include "{HEADER.name}"\n' + "".join(f"{name}\n" for name in CONSTANTS))
    done = process.run(
        ["gcc", "-E", "-P", f"-I{HEADER.parent}", "numbers.c"],
        cwd=tmp_path,
        limits=Patience(),
        environment={"PATH": os.environ["PATH"]},
    )
    seen = done.stdout.decode().splitlines()[-len(CONSTANTS) :]
    used = {name: value for name, value in vars(constants).items() if isinstance(value, int)}

    assert dict(zip(CONSTANTS, map(int, seen), strict=True)) == CONSTANTS == used


def test_what_is_kept_depends_on_the_header() -> None:
    """Cases that were played, and results of a class: other numbers make other ones."""
    assert HEADER in stored._code_files()
    assert HEADER in workers.code()


def test_no_reader_sees_an_expression() -> None:
    """Neither in sentences, hints and titles nor in the comments of cases."""
    cases = case_files.load_folder(lab().cases, lab().grammar, seed=1)
    texts = [*lab().grammar.clauses.values(), *(mistake.hint for mistake in lab().mistakes)]
    texts += [*(rule.title for rule in lab().rubric.rules), *(case.title for case in cases)]
    texts += [operation.comment for case in cases for operation in case.trace.operations]

    assert [text for text in texts if re.search(r"\{[^}]*[A-Z]|\{[a-z]\b", text)] == []
