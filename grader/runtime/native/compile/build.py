"""Build a C submission with the handout's exact command, then link it; its problems are returned as findings.

The file can be built once more, instrumented to report undefined behaviour or lines while it runs. The functions that
the instrumented code calls are in harness/faults.c and harness/lines.c. So no part of libubsan or libtsan is needed,
events are part of the harness's report, and the program continues after an event, where a trap would end the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from grader.core.errors import DriverError, OptionalStage, OptionalStages
from grader.core.verdict import Advice, Finding
from grader.runtime.native.compile.elf import Bind, Elf, Symbols, too_many_sections, too_much
from grader.runtime.native.compile.harness_objects import SANITIZED_CALLS, TRACED_CALLS
from grader.runtime.native.compile.suspects import (
    MOST_FINDINGS,
    object_findings,
    program_findings,
    unneeded_calls_advice,
)
from grader.runtime.native.compile.toolchain import (
    GCC,
    OBJCOPY,
    STOPPED,
    Linked,
    compile_file,
    compile_once,
    link,
    link_file,
)
from grader.runtime.native.project import CProject
from grader.runtime.protocol import Built, build_finding
from grader.system import resources
from grader.system.sandbox import Workspace

_MOST_SECONDS = 1.0
"""The CPU seconds of a build after which a rejected file is not built in other ways."""
_MOST_NAMES, _LONGEST = 1000, 100  # names searched for a misspelt one, and characters of each
_FOREIGN = "{} is put into the program; only your own file, the official header and the system's may be"


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
    `link`. `optional` runs what cannot change points. Raises `GraderError` when the file is not the cause of a failure.
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
            from grader.runtime.native.compile.diagnostics import findings_of  # noqa: PLC0415 - a right program does not need it

            findings += findings_of(project, work, compiled, source=source, own_headers=own_headers)
    elif compiled.foreign:
        findings += [build_finding("foreign-file", _FOREIGN.format(name)) for name in compiled.foreign]
    elif excess := too_much(compiled.elf):
        findings.append(build_finding(STOPPED, f"what gcc makes of this file has {excess}"))
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
        stopped=spent > _MOST_SECONDS or any(finding.kind == STOPPED for finding in findings),
        late=late,
        command=" ".join(project.compile_command),
        cpu_seconds=spent,
    )


def _similar(name: str, others: Iterable[str]) -> list[str]:
    """Return a list with the most similar name, or an empty list."""
    import difflib  # noqa: PLC0415 - needed only if something is missing

    return difflib.get_close_matches(name, [other[:_LONGEST] for other in others], n=1)


def _symbol_findings(project: CProject, elf: Elf, symbols: Symbols, missing: Sequence[str]) -> Iterator[Finding]:
    for name in missing:
        similar = _similar(name, islice(sorted(symbols.defined - project.functions.keys()), _MOST_NAMES))
        hint = f"; is your {similar[0]} meant to be it?" if similar else ""
        yield build_finding("missing-function", f"{project.source_name} does not define {name}{hint}", field=name)
    if any(symbol.name == "main" and symbol.bind == Bind.GLOBAL and symbol.section for symbol in elf.symbols("main\0")):
        message = (
            f"{project.source_name} defines main; it clashes with the main of every program that it is linked with. "
            "Put your tests into a file of their own"
        )
        yield build_finding("extra-main", message, field="main")


def _link_findings(project: CProject, work: Workspace, linked: Linked) -> list[Finding]:
    """Return findings that say why no program that can be run was linked; [] if one was linked."""
    if linked.exhausted:
        message = f"{linked.step} needed too much time or memory for what gcc makes of it and was stopped"
        return [build_finding(STOPPED, message)]
    if linked.step:
        return [_link_finding(project, work, linked)]
    excess = too_many_sections(linked.programs.values())
    return [build_finding(STOPPED, f"the program that is made of this file has {excess}")] if excess else []


def _link_finding(project: CProject, work: Workspace, linked: Linked) -> Finding:
    """Return a finding with the linker's messages about the student's file, without folders and paths of tools."""
    stderr_lines = linked.done.stderr.decode(errors="replace").replace(f"{work.folder}/", "").splitlines()
    lines = [line.split(": ", 1)[-1] if line.startswith("/") else line for line in stderr_lines]
    text = "; ".join(line for line in lines if line.startswith(project.source_name))[:2000].strip()
    otherwise = "a function is missing" if linked.unresolved else f"{linked.step} cannot make a program of it"
    message = f"it compiles, but cannot be linked: {text or otherwise}"
    field = "A function is used that no file defines." if linked.unresolved else ""
    return build_finding("linker", message, field=field)


_LINES = ("-O0", "-fno-builtin", "-fsanitize-coverage=trace-pc", "-fsanitize=thread")


def build_sanitized(project: CProject, work: Workspace, source: bytes) -> Built:
    """Build a program that reports undefined behaviour; see `_built`."""
    return _built(project, work, source, ("-fsanitize=undefined",), called=SANITIZED_CALLS)


def build_with_lines(project: CProject, work: Workspace, source: bytes) -> Built:
    """Build a program, not optimized, that reports each line that it runs or that writes to memory; see `_built`."""
    return _built(project, work, source, _LINES, called=TRACED_CALLS)


def _built(
    project: CProject, work: Workspace, source: bytes, options: Sequence[str], *, called: Sequence[str]
) -> Built:
    """Compile and link `source` with `options` for which gcc inserts calls of functions that match `called`.

    The result has no program when gcc was stopped, the object exceeds a bound (`too_much`) or the link failed.
    Warnings are forgiven, because the code that gcc inserts causes more of them than the handout's command reports.
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
