"""What the object scan found, in words and with lines: findings that score 0 until somebody has looked at them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from grader.build import needless, scan
from grader.build.link import Linked
from grader.build.project import CProject
from grader.build.scan import Suspect
from grader.errors import DriverError
from grader.plain import plain
from grader.sandbox import Limits, Workspace
from grader.symbols import lines_at
from grader.verdict import Advice, Finding, SourceLine, Tool, Verdict

__all__ = ["needless_advice", "object_findings", "program_findings"]

_WORDS = {
    "constructor": "{0} is called before main, where the grader is not ready. Take the constructor away, and call the "
    "function where it is needed",
    "destructor": "{0} is called after main, where the grader has gone. Take the destructor away, and call the "
    "function where it is needed",
    "ifunc": "{0} is chosen by a function that is called before main (ifunc). Write one plain function instead",
    "our-name": "{0} is a name of the grader's own. Give it another name",
    "redirection": "{0} is a name by which Valgrind replaces functions. Give the function another name",
    "steering-section": "the section {0} steers the linker or the loader. Take it away",
    "changeable-code": "the section {0} can be both written and run, so nobody can tell what it does. Take the section "
    "attribute or the assembly away",
    "client-request": "{0} gives an order to Valgrind (a client request), and so could hide errors from it. Take the "
    "macro or the assembly away",
    "hidden-request": "{0} hides an order to Valgrind (a client request) within other instructions, where a jump would "
    "find it. Take the assembly away",
}
"""What each kind means and what to do."""

_UNKNOWN = "client_request"
"""What `--allow` takes for an order to Valgrind whose function no debug line tells."""

_MOST_LINES = 20  # of one needless call
_INSTRUCTION = re.compile(rb"^ *([0-9a-f]+):\t", re.MULTILINE)


def object_findings(project: CProject, work: Workspace, data: bytes) -> Iterator[Finding]:
    """What sections and symbols of the object tell."""
    found = scan.suspects(data)
    places: dict[str, list[int]] = {}
    for suspect in found:
        if suspect.section:
            places.setdefault(suspect.section, []).append(suspect.offset)
    lines = {section: _lines(project, work, section, offsets) for section, offsets in places.items()}
    for suspect in found:
        source = lines[suspect.section][suspect.offset][-1:] if suspect.section else ()
        yield _finding(project, suspect, source)


def program_findings(project: CProject, work: Workspace, data: bytes, linked: Linked) -> Iterator[Finding]:
    """What only the linked programs show. `data` is the object that they were made of."""
    for suspect in scan.named(data, linked.prefix):
        yield _finding(project, suspect, ())
    for name, program in {"program": linked.native, "checked": linked.checked}.items():
        for suspect in scan.writable_code(program, data):
            yield _finding(project, suspect, ())
        addresses = scan.program_requests(program, linked.prefix)
        lines = lines_at(work, name, addresses, project.source_name) if addresses else {}
        for address in addresses:
            frames = lines.get(address, [])
            kind = "client-request" if _is_instruction(work, name, program, address) else "hidden-request"
            symbol = frames[0].function if frames else ""
            yield _finding(project, Suspect(kind=kind, symbol=symbol or _UNKNOWN), frames[:1])


def needless_advice(project: CProject, work: Workspace, data: bytes, undefined: Collection[str]) -> Iterator[Advice]:
    """A line of advice for each function of libc that no memory manager needs."""
    names = needless.called(undefined)
    found: dict[str, list[SourceLine]] = {name: [] for name in names}
    for section, calls in (scan.calls(data, names) if names else {}).items():
        lines = _lines(project, work, section, sorted(calls))
        for place, name in sorted(calls.items()):
            found[name] += lines[place][:1]
    return needless.advice({name: tuple(dict.fromkeys(lines))[:_MOST_LINES] for name, lines in found.items()})


def _lines(project: CProject, work: Workspace, section: str, places: Sequence[int]) -> dict[int, list[SourceLine]]:
    return lines_at(work, project.object_name, places, project.source_name, section=section)


def _is_instruction(work: Workspace, name: str, data: bytes, address: int) -> bool:
    """Does an instruction of the function begin there, read from its first one on?"""
    start = scan.function_before(data, address)
    # an instruction over its beginning is whole within the order's length
    window = [f"--start-address={start}", f"--stop-address={address + scan.ORDER_BYTES}"]
    done = work.run(["objdump", "-d", "--no-show-raw-insn", *window, name], limits=Limits(wall_seconds=30))
    found = _INSTRUCTION.findall(done.stdout)
    if not done.succeeded or not found:
        raise DriverError(f"objdump failed: {done.stderr.decode(errors='replace') or 'it says nothing'}")
    return address in {int(place, 16) for place in found}


def _finding(project: CProject, suspect: Suspect, source: Iterable[SourceLine]) -> Finding:
    return Finding(
        rule=project.rule,
        verdict=Verdict.REJECTED,
        tool=Tool.SCAN,
        kind=suspect.kind,
        message=_WORDS[suspect.kind].format(suspect.symbol),
        field=plain(suspect.symbol),  # as `--allow` takes it from a report
        source=tuple(source),
    )
