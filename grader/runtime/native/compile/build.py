"""Build a C submission with the handout's exact command, then link it; its problems are returned as findings.

It can be built once more, instrumented to report undefined behaviour or lines while it runs. The functions that the
instrumented code calls are in harness/faults.c and harness/lines.c. So nothing of libubsan or libtsan is needed, events
are reported in frames of the report, and the program continues after an event, where a trap would end the case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from grader.core.errors import DriverError
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.core.verdict import Advice, Finding, SourceLine, Tool, Verdict
from grader.runtime.native.compile import diagnostics
from grader.runtime.native.compile.diagnostics import Diagnostic
from grader.runtime.native.compile.harness_objects import SANITIZED_CALLS, TRACED_CALLS
from grader.runtime.native.compile.link import Linked, link
from grader.runtime.native.compile.toolchain import GCC, OBJCOPY, Compiled, compile_file, compile_once, link_file
from grader.runtime.native.project import CProject
from grader.runtime.native.scan.elf import Bind, Elf, Symbols
from grader.runtime.native.scan.expected import too_many_sections, too_much
from grader.runtime.native.scan.rejected import (
    MOST_FINDINGS,
    object_findings,
    program_findings,
    unneeded_calls_advice,
)
from grader.runtime.protocol import Built
from grader.system import resources
from grader.system.sandbox import COMPILE_LIMITS, Workspace

if TYPE_CHECKING:
    from grader.runtime.native.compile.macros import Macros

_STOPPED = "compiler-stopped"
_CRASHED = (
    "gcc itself crashes on this file each time, and compiles another file here. That is a mistake in gcc; something "
    "unusual in the file brings it to light, such as thousands of nested brackets. Leave parts of the file out until "
    "gcc compiles it, and write the part that was left out in another way"
)
_WITHOUT_REASON = "it gives no reason. Compile the file yourself with the command of the handout"
_MOST_SECONDS, _MOST_OF_ONE = 1.0, 0.5
"""CPU seconds: a rejected file is not built in other ways when building took more than the first, or gcc the second."""

_ASSEMBLER = re.compile(r"^/\S+\.s:\d+: (Error: .*)", re.MULTILINE)  # the assembler's input is a temporary file
_MOST_NAMES, _LONGEST = 1000, 100  # names searched for a misspelt one, and characters of each
_FOREIGN = "{} is put into the program; only your own file, the official header and the system's may be"
_QUOTED = re.compile(r"['‘](\w+)['’]")


def build(
    project: CProject,
    work: Workspace,
    source: bytes,
    *,
    own_headers: Mapping[str, bytes],
    relaxed: bool,
    optional: OptionalStages,
    allowed: frozenset[str] = frozenset(),
    only: Mapping[str, str] | None = None,
) -> Built:
    """Compile and link `source` in the workspace; problems of the file are returned as findings.

    `own_headers` are only used to explain a failure. `relaxed` forgives warnings and missing functions, to find out
    what a submission that does not compile would have scored. `allowed` symbols cause no rejection. `only` as for
    `link`. `optional` runs what cannot change points. Raises `GraderError` when a tool fails and the file does not.
    """
    resources.require(GCC, OBJCOPY)
    command = [flag for flag in project.compile_command if not (relaxed and flag == "-Werror")]
    findings: list[Finding] = []
    suspicions: list[Finding] = []
    advice: tuple[Advice, ...] = ()
    program, compiled = None, compile_file(project, work, source, command)
    spent, late = compiled.cpu_seconds, compiled.stopped
    if compiled.elf is None:
        if not relaxed:
            findings += _with_macros(project, source, _compile_findings(project, work, compiled, own_headers))
    elif compiled.foreign:
        findings += [_finding("foreign-file", _FOREIGN.format(name)) for name in compiled.foreign]
    elif excess := too_much(compiled.elf):
        findings.append(_finding(_STOPPED, f"what gcc makes of this file has {excess}"))
    else:
        elf, symbols = compiled.elf, Symbols.of(compiled.elf)
        suspicions += object_findings(project, work, elf, allowed, optional=optional)
        advise = partial(unneeded_calls_advice, project, work, elf, symbols.undefined)
        advice = optional.run(OptionalStage.ADVICE, lambda: tuple(advise()), otherwise=())
        missing = [name for name in project.functions if name not in symbols.defined]
        findings += _symbol_findings(project, elf, symbols, missing)
        if all(finding.field in allowed for finding in suspicions) and (not missing or relaxed):
            linked = link_file(project, work, elf, missing, only=only)
            spent, late = spent + linked.cpu_seconds, linked.exhausted
            failed = _link_findings(project, work, linked)
            findings += failed
            if not failed:
                program = linked.program(project.source_name)
                suspicions += program_findings(project, work, elf, linked)
    rejected = [finding for finding in dict.fromkeys(suspicions) if finding.field not in allowed]
    return Built(
        program=program if not rejected else None,
        findings=(*rejected[:MOST_FINDINGS], *findings[:MOST_FINDINGS]),
        advice=advice,
        allowed=tuple(dict.fromkeys(finding.field for finding in suspicions if finding.field in allowed)),
        stopped=spent > _MOST_SECONDS or any(finding.kind == _STOPPED for finding in findings),
        late=late,
        command=" ".join(project.compile_command),
        cpu_seconds=spent,
    )


def _similar(name: str, others: Iterable[str]) -> list[str]:
    """Return the name that is most similar, where there is any."""
    import difflib  # noqa: PLC0415 - needed where something is missing

    return difflib.get_close_matches(name, [other[:_LONGEST] for other in others], n=1)


def _symbol_findings(project: CProject, elf: Elf, symbols: Symbols, missing: Sequence[str]) -> Iterator[Finding]:
    for name in missing:
        similar = _similar(name, islice(sorted(symbols.defined - project.functions.keys()), _MOST_NAMES))
        hint = f"; is your {similar[0]} meant to be it?" if similar else ""
        yield _finding("missing-function", f"{project.source_name} does not define {name}{hint}", field=name)
    if any(symbol.name == "main" and symbol.bind == Bind.GLOBAL and symbol.section for symbol in elf.symbols("main\0")):
        message = (
            f"{project.source_name} defines main; it clashes with the main of every program that it is linked with. "
            "Put your tests into a file of their own"
        )
        yield _finding("extra-main", message, field="main")


def _compile_findings(
    project: CProject, work: Workspace, compiled: Compiled, own_headers: Mapping[str, bytes]
) -> list[Finding]:
    """Return the findings for a failed compilation, from gcc's machine-readable messages."""
    if compiled.too_large:
        return [_finding(_STOPPED, "what gcc makes of this file is larger than 64 MB; gcc was stopped")]
    if compiled.stopped or compiled.again is None:
        return [_finding(_STOPPED, "gcc needed too much time or memory for this file and was stopped")]
    if compiled.crashed:
        crashes = (text for text in diagnostics.parse_text(compiled.done.stderr) if not text.is_error and text.line)
        places = [SourceLine(file=crash.file, line=crash.line, column=crash.column) for crash in crashes]
        return [_finding(_STOPPED, _CRASHED, source=tuple(places[:1]))]
    errors = [diagnostic for diagnostic in diagnostics.parse(compiled.again.stderr) if diagnostic.is_error]
    errors = errors or [text for text in diagnostics.parse_text(compiled.done.stderr) if text.is_error]
    own = own_headers.get(project.header.name)
    if own is not None and own != project.header.read_bytes() and compiled.done.cpu_seconds <= _MOST_OF_ONE:
        blamed = _blame_header(project, work, own_headers, errors)
        if blamed is not None:
            return [blamed, *(_gcc_finding(project, error) for error in errors[: MOST_FINDINGS - 1])]
    errors = list(dict.fromkeys(errors))
    if not errors and "stderr" in compiled.again.cut | compiled.done.cut:
        message = (
            "gcc complains about this file for more than a megabyte. Run it yourself and correct the first mistake"
        )
        return [_finding("compiler", message)]
    if not errors:
        text = "; ".join(dict.fromkeys(_ASSEMBLER.findall(compiled.done.stderr.decode(errors="replace")[:2000])))
        return [_finding("compiler", f"gcc refuses the file: {text or _WITHOUT_REASON}")]
    return [_gcc_finding(project, error) for error in errors[:MOST_FINDINGS]]


def _blame_header(
    project: CProject, work: Workspace, own_headers: Mapping[str, bytes], errors: Sequence[Diagnostic]
) -> Finding | None:
    """Return a finding when the file compiles with the student's own header; None when it does not.

    The names in gcc's errors that only the student's own header has are reported as missing.
    """
    try:
        for name, content in own_headers.items():
            work.add(name, content)
        passes = work.run(project.compile_command, limits=COMPILE_LIMITS).succeeded
    finally:
        work.add(project.header.name, project.header.read_bytes())
    if not passes:
        return None
    own_words = set(re.findall(r"\w+", own_headers[project.header.name].decode(errors="replace")))
    official = set(re.findall(r"\w+", project.header.read_text()))
    only_theirs = own_words - official
    quoted = [name for error in errors for name in _QUOTED.findall(error.message)]
    missing = [name for name in dict.fromkeys(quoted) if name in only_theirs]
    named = f" Only your header declares: {', '.join(missing)}." if missing else ""
    message = (
        f"it compiles with your own {project.header.name}, but is graded with the official one.{named} "
        f"Move what you need into {project.source_name}"
    )
    return _finding("own-header", message, field=", ".join(missing))


def _gcc_finding(project: CProject, error: Diagnostic) -> Finding:
    option = f" [{error.option}]" if error.option else ""
    place = SourceLine(file=error.file or project.source_name, line=error.line, column=error.column)
    return _finding(
        "compiler",
        f"{error.message}{option}",
        field=diagnostics.meaning(error, project.header.name),
        source=(place,) if error.line else (),
    )


def _with_macros(project: CProject, source: bytes, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of gcc with the lines of the macros that stand at their places."""
    from grader.runtime.native.compile.macros import Macros  # noqa: PLC0415 - not where all is well

    macros = Macros.of(source.decode(errors="replace"))
    for finding in findings:
        yield _with_macro(project, finding, macros)


def _with_macro(project: CProject, finding: Finding, macros: Macros) -> Finding:
    """Return a finding of gcc with the line of the macro that stands at its place: what gcc means is written there."""
    place = finding.source[0] if finding.kind == "compiler" and finding.source else None
    if place is None or place.file != project.source_name:
        return finding
    definition = macros.at(place.line, place.column)
    if definition is None:
        return finding
    macro = replace(place, line=definition.line, column=0)
    text = f"{finding.field} What is meant is written in the macro {definition.name}, at {macro}.".strip()
    return replace(finding, field=text, source=(place, macro))


def _link_findings(project: CProject, work: Workspace, linked: Linked) -> list[Finding]:
    """Return why the link made no program that can be run; nothing when it made one."""
    if linked.exhausted:
        message = f"{linked.step} needed too much time or memory for what gcc makes of it and was stopped"
        return [_finding(_STOPPED, message)]
    if linked.step:
        return [_link_finding(project, work, linked)]
    excess = too_many_sections(linked.programs.values())
    return [_finding(_STOPPED, f"the program that is made of this file has {excess}")] if excess else []


def _link_finding(project: CProject, work: Workspace, linked: Linked) -> Finding:
    """Return a finding with the linker's messages about the student's file, without folders and paths of tools."""
    stderr_lines = linked.done.stderr.decode(errors="replace").replace(f"{work.folder}/", "").splitlines()
    lines = [line.split(": ", 1)[-1] if line.startswith("/") else line for line in stderr_lines]
    text = "; ".join(line for line in lines if line.startswith(project.source_name))[:2000].strip()
    otherwise = "a function is missing" if linked.unresolved else f"{linked.step} cannot make a program of it"
    message = f"it compiles, but cannot be linked: {text or otherwise}"
    field = "A function is used that no file defines." if linked.unresolved else ""
    return _finding("linker", message, field=field)


def _finding(kind: str, message: str, *, field: str = "", source: tuple[SourceLine, ...] = ()) -> Finding:
    return Finding(
        rule="",
        verdict=Verdict.COMPILE_ERROR,
        tool=Tool.BUILD,
        kind=kind,
        message=message,
        field=field,
        source=source,
    )


_LINES = ("-O0", "-fno-builtin", "-fsanitize-coverage=trace-pc", "-fsanitize=thread")


def build_sanitized(project: CProject, work: Workspace, source: bytes) -> Built:
    """Build a program that reports undefined behaviour; see `_built`."""
    return _built(project, work, source, ("-fsanitize=undefined",), called=SANITIZED_CALLS)


def build_with_lines(project: CProject, work: Workspace, source: bytes) -> Built:
    """Build a program, not optimized, that reports which lines it runs and which line stored what; see `_built`."""
    return _built(project, work, source, _LINES, called=TRACED_CALLS)


def _built(
    project: CProject, work: Workspace, source: bytes, options: Sequence[str], *, called: Sequence[str]
) -> Built:
    """Compile and link `source`, which the handout's command accepts; gcc inserts calls of functions like `called`.

    The result has no program when gcc was stopped, the object exceeds a bound (`too_much`) or the link failed.
    Warnings are forgiven: the code that gcc inserts causes more of them.
    """
    flags = [flag for flag in project.compile_command if flag != "-Werror"]
    compiled = compile_once(project, work, source, [*flags, *options])
    elf, spent = compiled.elf, compiled.cpu_seconds
    if elf is None and compiled.done.succeeded:
        raise DriverError("gcc says that it compiled the file, and left no object")
    if elf is None or too_much(elf):
        return Built(program=None, cpu_seconds=spent)
    linked = link(project, work, elf, called_by_gcc=called)
    program = None if linked.step else linked.program(project.source_name)
    return Built(program=program, cpu_seconds=spent + linked.cpu_seconds)
