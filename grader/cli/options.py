"""Options that several commands share: assignment and cases, how to grade, what a report shows, where it is written.

Without --lab, the name of the submission's file says which assignment it is.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from grader.assignment import case_files
from grader.assignment.case_files import CaseSelection, select_cases
from grader.assignment.input_file import suggestion
from grader.assignment.lab import Lab
from grader.assignment.rubric import SEED
from grader.assignment.samples import is_patched, lab_of_sample
from grader.assignment.source import missing, names_below, nearest_of
from grader.cli.app import flag, number, number_option, option, repeated
from grader.cli.terminal import columns, in_workflow, is_colourful, rows
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.labs import LABS, open_lab, present
from grader.report.document import View
from grader.runtime.protocol import DEFAULTS, GradingOptions
from grader.system.sandbox import LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The options for how much a report shows."""

    instructor: bool = flag(
        "--instructor", "Show hidden cases too, and the points that a program would have if it could be built."
    )
    everything: bool = flag(
        "--all", "Show every cause in full and how it was graded; without it a text report fits the terminal."
    )

    def view(self, *, to_file: bool = False) -> View:
        """Return how to show a report: reader, width, colours, whether in a workflow log. Defaults if `to_file`."""
        time = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        view = View(instructor=self.instructor, everything=self.everything, variables=os.environ, time=time)
        if to_file:
            return view
        return replace(view, workflow=in_workflow(), width=columns(view.width), height=rows(), colour=is_colourful())


def check_format(name: str, known: Collection[str]) -> None:
    """Raise `UsageError` if `name` is not a known format."""
    if name not in known:
        raise UsageError(f"there is no format '{name}'{suggestion(name, known)}; there are {', '.join(known)}")


def _is_submission(file: Path, graded: Iterable[Path]) -> bool:
    return file.name in _sources().values() or any(path.exists() and file.samefile(path) for path in graded)


def check_output(output: Path | None, option: str = "--output", *, graded: Iterable[Path] = ()) -> None:
    """Raise `UsageError` if the file at `output` cannot be written: check this before any work is done.

    A file in `graded` is never overwritten, nor any other file with the name of a submission.
    """
    if output is None:
        return
    if output.is_file() and _is_submission(output, graded):
        raise UsageError(f"{option} {output}: it would overwrite a submission; write the name of another file")
    if not output.parent.is_dir():
        raise UsageError(f"{option} {output}: there is no folder {output.parent}")
    if output.exists() and not output.is_file():
        raise UsageError(f"{option} {output}: it is not a file; write the name of a file")
    if not os.access(output.parent, os.W_OK):
        raise UsageError(f"{option} {output}: no permission to write to {output.parent}")


_MOST_JOBS = 64  # the number of user ids reserved for graded programs (grader.system.confine.launcher)
_MOST_BYTES = 20 << 20
"""The most bytes of an inner zip whose file names are read."""
_FLAGS = {
    "memory_checker": "--without-memory-checker",
    "advise": "--advice",
    "allowed": "--allow",
    "stock": "--lane",
}
_LANES = ("fast", "stock")


def lab_option() -> Any:
    """Return a field for --lab."""
    text = f"The assignment: {', '.join(present())} [default: by the name of the file]."
    return option("--lab", "LAB", text, offer=present)


def seed_option() -> Any:
    """Return a field for --seed."""
    text = "The seed of random values, such as words that fill memory [default: the rubric's]."
    return option("--seed", "NUMBER", text, type=number(SEED))


def public_option() -> Any:
    """Return a field for --public-only."""
    return flag("--public-only", "Omit hidden cases; their points stay open. Always on if there are no hidden cases.")


def memory_checker_option() -> Any:
    """Return a field for --without-memory-checker."""
    text = "Skip the tool that finds wrong uses of memory. The record and the report say so."
    return flag("--without-memory-checker", text)


def jobs_option() -> Any:
    """Return a field for --jobs."""
    text = "The number of submissions graded at once on this machine [default: one for each processor]."
    default = min(_MOST_JOBS, len(os.sched_getaffinity(0)))
    return number_option("--jobs", "N", text, 1, _MOST_JOBS, default=default)


def sandbox_option() -> Any:
    """Return a field for --require-sandbox."""
    text = f"Grade only if the machine has this protection or a stronger one: {', '.join(LEVELS)}."
    return option("--require-sandbox", "LEVEL", text, choices=LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that select an assignment and its cases."""

    lab: str | None = lab_option()
    case: str = option(
        "--case", "GLOB", "Only the cases whose names match, such as 'append/*' or '*fork*'.", default="*"
    )
    public_only: bool = public_option()

    def cases(self, lab: Lab, seed: int | None = None) -> CaseSelection:
        """Return the cases of a lab. Raises `UsageError` if none matches, `CaseFileError` if a case file is wrong."""
        return select_cases(lab, seed=seed_of(lab, seed), pattern=self.case, public_only=self.public_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class HowGraded:
    """The options on which the result of a grading, its record, depends."""

    seed: int | None = seed_option()
    without_memory_checker: bool = memory_checker_option()
    advice: bool = flag("--advice", "Also look for problems that cost no points; takes twice the time.")
    allow: tuple[str, ...] = repeated(
        "--allow", "SYMBOL", "Do not reject a program for this symbol: you have looked at it. Repeatable."
    )
    lane: str = option(
        "--lane",
        "NAME",
        "How programs in C are linked: fast, or stock, with libc as the handout's commands link them. Use stock if a "
        "result is disputed. Only programs that use memory of others, or all their time, may behave differently.",
        choices=_LANES,
        default=_LANES[0],
    )

    def options(self) -> GradingOptions:
        """Return the options of one grading."""
        return GradingOptions(
            seed=self.seed,
            memory_checker=not self.without_memory_checker,
            advise=self.advice,
            allowed=tuple(sorted(set(self.allow))),
            stock=self.lane == "stock",
        )


def check_options(lab: Lab, given: GradingOptions) -> GradingOptions:
    """Return the `given` options. Raises `UsageError` if one of them has no meaning for submissions of this lab."""
    flags = [flag for name, flag in _FLAGS.items() if getattr(given, name) != getattr(DEFAULTS, name)]
    wrong = [flag for flag in flags if flag not in [_FLAGS[name] for name in lab.runtime.options]]
    if wrong:
        raise UsageError(f"omit {', '.join(wrong)}: not supported for submissions to {lab.name}")
    return given


def seed_of(lab: Lab, seed: int | None) -> int:
    """Return the seed given by --seed, else the rubric's seed."""
    return lab.rubric.seed if seed is None else seed


def labs_named(name: str | None) -> list[Lab]:
    """Return the lab with this name; all labs if `name` is None. Raises `UsageError` if there is no such lab."""
    return [lab_named(lab) for lab in ([name] if name is not None else present())]


def lab_named(name: str | None) -> Lab:
    """Return the lab with this name, or the only lab if `name` is None. Raises `UsageError` if there are several."""
    labs = present()
    if not name and len(labs) > 1:
        raise UsageError(f"which assignment? write --lab and one of {', '.join(labs)}")
    name = name or labs[0]
    if name not in labs:
        raise UsageError(f"there is no lab '{name}'; write --lab {_closest(name, labs)}")
    return open_lab(name)


def case_names() -> list[str]:
    """Return the case names of all assignments, for shell completion."""
    return [case_files.name_of(path) for lab in labs_named(None) for path in case_files.paths(lab.cases)]


def case_named(labs: Iterable[Lab], name: str, seed: int | None) -> tuple[Lab, Case]:
    """Return one case and its lab. `name` is the name of the case, the end of its name, or its path.

    Only this case is loaded. Raises `UsageError` unless exactly one case matches, and `CaseFileError` if its file is
    wrong.
    """
    pairs = [(lab, path) for lab in labs for path in case_files.paths(lab.cases)]
    wanted = name.removesuffix(".toml")
    fitting = [pair for pair in pairs if pair[1].with_suffix("") == Path(wanted).absolute()]
    fitting = fitting or [pair for pair in pairs if f"/{wanted}".endswith(f"/{case_files.name_of(pair[1])}")]
    fitting = fitting or [pair for pair in pairs if pair[1].stem == wanted]
    if len(fitting) == 1:
        ((lab, path),) = fitting
        return lab, case_files.load(path, lab.grammar, seed=seed_of(lab, seed))
    if fitting:
        several = len({lab.name for lab, _ in fitting}) > 1
        names = [
            f"{case_files.name_of(path)} (--lab {lab.name})" if several else case_files.name_of(path)
            for lab, path in fitting
        ]
        raise UsageError(f"which one? {', '.join(names)}")
    close = _closest(wanted, [*(case_files.name_of(path) for _, path in pairs), *(path.stem for _, path in pairs)])
    raise UsageError(f"there is no case '{name}'" + (f"; did you mean '{close}'?" if close else "; see `grade cases`"))


def own_cases(files: Iterable[Path], lab_name: str | None, seed: int | None) -> tuple[Lab, list[Case]]:
    """Return the cases in the user's own files, or in folders of such files, and their lab.

    Raises `UsageError` if it is not clear to which lab the cases belong, and `CaseFileError` with all their mistakes.
    """
    paths_of = {file: sorted(file.rglob("*.toml")) if file.is_dir() else [file] for file in files}
    paths = [path for some in paths_of.values() for path in some]
    without = [str(file) for file, some in paths_of.items() if not any(path.is_file() for path in some)]
    if without:
        raise UsageError(f"{', '.join(without)}: there is no case file")
    labs = labs_named(lab_name)
    for path in paths if len(labs) > 1 else ():
        labs = _labs_of_case(path, labs)
    if len(labs) != 1:
        raise UsageError(f"of which assignment are these cases? write --lab and one of {', '.join(present())}")
    (lab,) = labs
    return lab, case_files.load_all([path.absolute() for path in paths], lab.grammar, seed=seed_of(lab, seed))


def _labs_of_case(path: Path, labs: Sequence[Lab]) -> list[Lab]:
    """Return the labs that have the rule and the first call of a case file; all labs if the file cannot be read."""
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return list(labs)
    words = str(values.get("operations", "")).split()
    called = next((word for word in words if not word.startswith("@")), "")
    return [
        lab
        for lab in labs
        if values.get("rule") in lab.grammar.rules and (not called or called in lab.grammar.operations)
    ]


def _closest(word: str, known: list[str]) -> str:
    """Return the known word that starts with `word`, else the most similar word, else the only one, else ""."""
    import difflib

    begun = [candidate for candidate in known if word and candidate.startswith(word)]
    similar = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return next(iter([*begun, *similar, *(known if len(known) == 1 else [])]), "")


def lab_of_submissions(paths: Collection[Path]) -> str:
    """Return the name of the lab to which the files at these paths belong.

    In a folder, the files on the shallowest level with a source file count. Paths that do not exist are ignored. Raises
    `UsageError` if a file belongs to no lab, if the files that count belong to several labs, or if no path exists.
    """
    sources = _sources()
    labs: dict[str, Path] = {}
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110 - False for a name that is too long, too
            names = nearest_of(path, set(sources.values())) if path.is_dir() else {path.name}
            names |= set(_in_zip(path)) if path.suffix.lower() == ".zip" and path.is_file() else set()
            labs.setdefault(lab_of_sample(path) if is_patched(path) else _lab_of(path, names), path)
    if len(labs) > 1:
        places = ", ".join(f"{one_line(str(path))} is of {lab}" for lab, path in labs.items())
        raise UsageError(f"these are of different assignments: {places}; grade each with a command of its own")
    if not labs and len(sources) > 1:
        path = next(iter(paths))
        raise UsageError(f"{one_line(str(path))}: {missing(' or '.join(sorted(sources.values())))}")
    return next(iter([*labs, *sources]))


def lab_of_class(folder: Path) -> str:
    """Return the name of the lab to which the files in a folder or a zip of submissions belong, at any depth.

    Raises `UsageError` if there is no file, or if the files belong to no lab or to several.
    """
    if not folder.exists():
        raise UsageError(f"{one_line(str(folder))}: there is no such folder")
    names = names_below(folder) if folder.is_dir() else {folder.name}
    for path in folder.iterdir() if folder.is_dir() else [folder]:
        if path.suffix.lower() == ".zip" and path.is_file():
            names |= set(_in_zip(path))
    return _lab_of(folder, names)


def _in_zip(path: Path | IO[bytes], *, inner: bool = False) -> Iterator[str]:
    """Yield the names of files in a zip and in its inner zips, as far as they can be read. The batch reports errors."""
    import struct
    import zipfile
    import zlib

    # damaged, encrypted (RuntimeError), or packed in a way that Python does not know
    unreadable = (
        *(OSError, EOFError, RuntimeError, ValueError, LookupError, ArithmeticError),
        *(zipfile.BadZipFile, zlib.error, struct.error),
    )
    with contextlib.suppress(*unreadable), zipfile.ZipFile(path) as packed:
        for entry in packed.infolist():
            yield entry.filename.rpartition("/")[2]
            if entry.filename.lower().endswith(".zip") and not inner and entry.file_size <= _MOST_BYTES:
                with packed.open(entry) as file:
                    yield from _in_zip(io.BytesIO(file.read(_MOST_BYTES)), inner=True)


def _lab_of(path: Path, names: set[str]) -> str:
    """Return the name of the lab of files with these names: by a whole name, else by a suffix that only one lab has."""
    sources = _sources()
    suffixes = {Path(name).suffix for name in names} - {""}
    labs = [lab for lab, source in sources.items() if source in names]
    labs = labs or [lab for lab, source in sources.items() if Path(source).suffix in suffixes]
    if len(labs) == 1:
        return labs[0]
    if labs:
        why = f"it may be a submission of {' or of '.join(labs)}; write --lab and one of them"
    else:
        wanted = ", ".join(f"{source} ({lab})" for lab, source in sources.items())
        why = f"there is no submission here: looked for {wanted}; with --lab LAB a missing file is graded as missing"
    raise UsageError(f"{one_line(str(path))}: {why}")


def _sources() -> dict[str, str]:
    """Return the name of the file that students submit, by lab."""
    return {lab: LABS[lab].source_name for lab in present()}
