"""Options that several commands share, and the functions that turn their values into labs and cases."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from grader.assignment import case_selection
from grader.assignment.case_selection import CaseSelection, select_cases
from grader.assignment.lab import Lab
from grader.assignment.rubric import SEED
from grader.cli.parser import Parser, number
from grader.cli.recognise import only_lab
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.labs import open_lab, present
from grader.runtime.options import DEFAULTS, GradingOptions
from grader.system.sandbox import LEVELS


def lab_option(parser: Parser) -> None:
    """Add --lab."""
    text = f"The assignment: {', '.join(present())} [default: by the name of the file]."
    parser.option("--lab", metavar="LAB", offer=present, help=text)


def case_option(parser: Parser) -> None:
    """Add --case."""
    text = "Only the cases whose name fits, such as 'append/*' or '*fork*'."
    parser.option("--case", metavar="GLOB", default="*", help=text)


def seed_option(parser: Parser) -> None:
    """Add --seed."""
    text = "Instead of the rubric's, for what a run makes up, such as the words that fill a pool."
    parser.option("--seed", metavar="NUMBER", type=number(SEED), help=text)


def grading_options(parser: Parser) -> None:
    """Add the options that change a record."""
    memory_checker_option(parser)
    parser.option("--advice", action="store_true", help="Look also for what costs no point, but twice the time.")
    text = "Reject nothing for this symbol: you have looked at it."
    parser.option("--allow", metavar="SYMBOL", action="append", default=[], help=text)


def memory_checker_option(parser: Parser) -> None:
    """Add --without-memory-checker."""
    text = "Go on without the tool that looks for wrong uses of memory; record and report say so."
    parser.option("--without-memory-checker", action="store_true", help=text)


def public_option(parser: Parser) -> None:
    """Add --public-only."""
    text = "Leave hidden cases out; their points stay open. Always so where there are none."
    parser.option("--public-only", action="store_true", help=text)


def sandbox_option(parser: Parser) -> None:
    """Add --require-sandbox."""
    text = f"Grade only where this protects the machine, or more: {', '.join(LEVELS)}."
    parser.option("--require-sandbox", metavar="LEVEL", choices=LEVELS, help=text)


_FLAGS = {"memory_checker": "--without-memory-checker", "advise": "--advice", "allowed": "--allow"}


def chosen_options(lab: Lab, options: GradingOptions) -> GradingOptions:
    """Return these options. Raises `UsageError` for those that mean nothing to submissions of this lab."""
    given = [flag for name, flag in _FLAGS.items() if getattr(options, name) != getattr(DEFAULTS, name)]
    known = [_FLAGS[name] for name in lab.runtime.options]
    wrong = [flag for flag in given if flag not in known]
    if wrong:
        raise UsageError(f"leave out {', '.join(wrong)}: that is nothing that a submission to {lab.name} knows")
    return options


def chosen_labs(name: str | None) -> list[Lab]:
    """Return the lab of this name, without a name all labs. Raises `UsageError` when there is none."""
    return [chosen_lab(lab_name) for lab_name in ([name] if name is not None else present())]


def chosen_lab(name: str | None) -> Lab:
    """Return the lab of this name, without a name the only one. Raises `UsageError` when there is none."""
    name = name or only_lab()
    if name not in present():
        raise UsageError(f"there is no lab '{name}'; write --lab {_closest(name, present())}")
    return open_lab(name)


def chosen_cases(lab: Lab, pattern: str, seed: int | None) -> list[Case]:
    """Return all cases that match. Raises `UsageError` when none does, `CaseFileError` when a case file is wrong."""
    return list(chosen_selection(lab, pattern, seed).cases)


def chosen_selection(lab: Lab, pattern: str, seed: int | None, *, public_only: bool = False) -> CaseSelection:
    """Return the cases that match, or only the public ones of them. Raises the same errors as `chosen_cases`."""
    return select_cases(lab, seed=lab.rubric.seed if seed is None else seed, pattern=pattern, public_only=public_only)


def case_names() -> list[str]:
    """Return the case names of all assignments, for a shell. Raises `CaseFileError` when one is wrong."""
    return [case.name for lab in present() for case in chosen_cases(open_lab(lab), "*", None)]


def chosen_case(labs: Iterable[Lab], name: str, seed: int | None) -> tuple[Lab, Case]:
    """Return one case by its name, by the end of its name, or by its path, and its lab.

    Raises `UsageError` unless one matches.
    """
    pairs = [
        (lab, case)
        for lab in labs
        for case in case_selection.load_cases(lab.cases, lab.grammar, seed=lab.rubric.seed if seed is None else seed)
    ]
    wanted = name.removesuffix(".toml")
    fitting = [pair for pair in pairs if pair[1].path.with_suffix("") == Path(wanted).absolute()]
    fitting = fitting or [pair for pair in pairs if pair[1].name == wanted or wanted.endswith(f"/{pair[1].name}")]
    fitting = fitting or [pair for pair in pairs if pair[1].path.stem == wanted]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        several = len({lab.name for lab, _ in fitting}) > 1
        names = [f"{case.name} (--lab {lab.name})" if several else case.name for lab, case in fitting]
        raise UsageError(f"which one? {', '.join(names)}")
    close = _closest(wanted, [case.name for _, case in pairs] + [case.path.stem for _, case in pairs])
    raise UsageError(f"there is no case '{name}'" + (f"; did you mean '{close}'?" if close else "; see `grade cases`"))


def _closest(word: str, known: list[str]) -> str:
    """Return the known word that starts with `word`, else the most similar one, else the only one, else ""."""
    begun = [candidate for candidate in known if word and candidate.startswith(word)]
    similar = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return next(iter([*begun, *similar, *(known if len(known) == 1 else [])]), "")
