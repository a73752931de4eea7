"""Findings for what the object scan found, with text and lines; they score 0 until a person has checked them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.core.sanitize import plain
from grader.core.verdict import Advice, Finding, SourceLine, Tool, Verdict
from grader.runtime.native.compile.harness_objects import harness_objects
from grader.runtime.native.compile.link import Linked
from grader.runtime.native.compile.toolchain import known_good_start
from grader.runtime.native.project import CProject
from grader.runtime.native.scan import libc_names
from grader.runtime.native.scan.elf import Elf
from grader.runtime.native.scan.expected import is_safe, start
from grader.runtime.native.scan.suspects import (
    ORDER_BYTES,
    Suspect,
    called_names,
    changes,
    functions_before,
    names_with_prefix,
    program_requests,
    suspects,
    writable_code,
)
from grader.runtime.native.symbolize import lines_at, run_tool
from grader.system.sandbox import Workspace

_WORDS = {
    "constructor": "{0} is called before main, where the grader is not ready. Take the constructor away, and call the "
    "function where it is needed",
    "destructor": "{0} is called after main, where the grader has gone. Take the destructor away, and call the "
    "function where it is needed",
    "ifunc": "{0} is chosen by a function that is called before main (ifunc). Write one plain function instead",
    "our-name": "{0} is a name of the grader's own. Give it another name",
    "redirection": "{0} is a name by which Valgrind replaces functions. Give the function another name",
    "steering-section": "the section {0} steers the linker or the loader. Take it away",
    "odd-section": "gcc makes no section of C that is called {0}, or that is what {0} is. Take the section attribute "
    "or the assembly away",
    "odd-symbol": "gcc makes no symbol of C that is called {0}, or that is what {0} is (of a version, unique, "
    "absolute). Take the assembly away",
    "odd-start": "a known-good file's program differs from this one, before main or after it: {0}. Take away what "
    "was not written in C",
    "changeable-code": "the section {0} can be both written and run, so nobody can tell what it does. Take the section "
    "attribute or the assembly away",
    "stack-code": "it needs a stack that can be run (a nested function whose address is taken), which {0} tells; here "
    "it would crash. Write the function outside of the other",
    "client-request": "{0} gives an order to Valgrind (a client request), and so could hide errors from it. Take the "
    "macro or the assembly away",
    "hidden-request": "{0} hides an order to Valgrind (a client request) within other instructions, where a jump would "
    "find it. Take the assembly away",
}
"""By kind of suspect: what it means, and what the student has to do."""

_UNKNOWN = "client_request"
"""The symbol that `--allow` takes for a client request to Valgrind whose function has no debug line."""

_MOST_CALLED, _MOST_LINES = 200, 20  # names that are reported, and lines of each
_MOST_PLACES, _MOST_CALLS = 10, 200  # sections, and calls in each, whose lines are looked up
_MOST_DISASSEMBLED = 1 << 13
MOST_FINDINGS = 20
"""The most rejections in a report, and the most other findings of a build."""
_INSTRUCTION = re.compile(rb"^ *([0-9a-f]+):\t", re.MULTILINE)


def object_findings(
    project: CProject, work: Workspace, elf: Elf, allowed: Collection[str], *, optional: OptionalStages
) -> Iterator[Finding]:
    """Yield the findings for sections and symbols of the object.

    `optional` looks up lines, only for the first `MOST_FINDINGS` that are not `allowed`.
    """
    odd = suspects(elf)
    to_locate = [suspect for suspect in odd if plain(suspect.symbol[:200]) not in allowed][:MOST_FINDINGS]
    places: dict[str, list[int]] = {}
    for suspect in to_locate:
        if is_safe(suspect.section):
            places.setdefault(suspect.section, []).append(suspect.offset)
    lines: dict[str, dict[int, list[SourceLine]]] = {}
    for section, offsets in places.items():
        look_up = partial(_lines, project, work, section, offsets)
        lines[section] = optional.run(OptionalStage.LINES, look_up, otherwise={})
    text = work.read(project.source_name).split(b"\n") if to_locate else []
    for suspect in odd:
        source: Iterable[SourceLine] = ()
        if suspect in to_locate:
            at = lines.get(suspect.section, {}).get(suspect.offset, [])[-1:]
            source = at or islice(_lines_with(text, suspect.symbol, project.source_name), 1)
        yield _finding(suspect, source)


def _lines_with(text: Sequence[bytes], symbol: str, source_name: str) -> Iterator[SourceLine]:
    """Yield the lines with the name of a section or symbol, less any version (`name@VERSION`)."""
    word = re.compile(rb"(?<![\w.$])" + re.escape(symbol.partition("@")[0].encode()) + rb"(?![\w.$])")
    return (SourceLine(file=source_name, line=number) for number, line in enumerate(text, 1) if word.search(line))


def program_findings(project: CProject, work: Workspace, student: Elf, linked: Linked) -> Iterator[Finding]:
    """Yield the findings that only the linked programs show, or the object that objcopy made for them.

    Where something in the object was allowed, what runs before main or after it is not compared.
    """
    spied = names_with_prefix(student.data, linked.prefix)
    for suspect in (*spied, *changes(student, linked.gated, project.functions)):
        yield _finding(suspect, ())
    for name, elf in linked.programs.items():
        for suspect in writable_code(elf, student):
            yield _finding(suspect, ())
        addresses = program_requests(elf, linked.prefix)[:MOST_FINDINGS]
        lines = lines_at(work, name, addresses, project.source_name) if addresses else {}
        functions = functions_before(elf, addresses)
        for address in addresses:
            innermost = lines.get(address, [])[:1]
            plainly = _is_instruction(work, name, begin=functions[address], address=address)
            kind = "client-request" if plainly else "hidden-request"
            symbol = next((line.function for line in innermost), "")
            yield _finding(Suspect(kind=kind, symbol=symbol or _UNKNOWN), innermost)
    starts = {f"{name} {linked.lanes[name]}": start(elf) for name, elf in linked.programs.items()}
    if not suspects(student) and any(linked.starts.get(lane) != words for lane, words in starts.items()):
        usual = known_good_start(project, work, student, linked.lanes)  # empties the folder
        for lane, words in starts.items():
            for word in sorted(words ^ usual.get(lane, frozenset())):
                yield _finding(Suspect(kind="odd-start", symbol=word), ())


def unneeded_calls_advice(project: CProject, work: Workspace, elf: Elf, undefined: Collection[str]) -> Iterator[Advice]:
    """Yield one advice for each name of libc that is used and not allowed; of very many, for the first ones."""
    names = libc_names.refused(undefined, lambda: harness_objects(project).libc())
    lines_by_name: dict[str, list[SourceLine]] = {name: [] for name in islice(names, _MOST_CALLED)}
    for section, calls in islice((called_names(elf, lines_by_name) if lines_by_name else {}).items(), _MOST_PLACES):
        first = dict(islice(sorted(calls.items()), _MOST_CALLS))
        lines = _lines(project, work, section, list(first)) if is_safe(section) else {}
        for place, name in first.items():
            lines_by_name[name] += lines.get(place, [])[:1]
    lines_of = {name: tuple(dict.fromkeys(lines))[:_MOST_LINES] for name, lines in lines_by_name.items()}
    return libc_names.advice(lines_of, names)


def _lines(project: CProject, work: Workspace, section: str, places: Sequence[int]) -> dict[int, list[SourceLine]]:
    return lines_at(work, project.object_name, places, project.source_name, section=section)


def _is_instruction(work: Workspace, name: str, *, begin: int, address: int) -> bool:
    """Whether an instruction of the function begins at the address, disassembled from the function's first one on."""
    if address - begin > _MOST_DISASSEMBLED:
        return False
    # an instruction that spans the start of the request ends within the request's length
    window = [f"--start-address={begin}", f"--stop-address={address + ORDER_BYTES}"]
    done = run_tool(work, ["objdump", "-d", "--no-show-raw-insn", *window, name])
    return done is not None and address in {int(place, 16) for place in _INSTRUCTION.findall(done.stdout)}


def _finding(suspect: Suspect, source: Iterable[SourceLine]) -> Finding:
    return Finding(
        rule="",
        verdict=Verdict.REJECTED,
        tool=Tool.SCAN,
        kind=suspect.kind,
        message=_WORDS[suspect.kind].format(plain(suspect.symbol[:200])),
        field=plain(suspect.symbol[:200]),  # in the form in which `--allow` takes it from a report
        source=tuple(source),
    )
