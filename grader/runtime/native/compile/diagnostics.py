"""The findings for a file that gcc does not compile: gcc's messages, and what each means in this homework.

gcc's messages for machines are parsed. They have the place where a macro is used, but not the place of its definition,
where the mistake often is. So the source is searched for the definition, if the name at gcc's place is a macro.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from grader.core.verdict import Finding, SourceLine
from grader.runtime.native.compile.suspects import MOST_FINDINGS
from grader.runtime.native.compile.toolchain import STOPPED, Compiled
from grader.runtime.native.project import CProject
from grader.runtime.protocol import build_finding
from grader.system.sandbox import COMPILE_LIMITS, Workspace

_NOWHERE = ("", 0, 0)
_MOST, _MOST_FAILURES, _MOST_LINE = 1000, 20, 10_000_000
"""Limits: messages read; brackets that open no JSON, each of which costs a scan of all text after it; line numbers."""
_FOR_PEOPLE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d{1,8}):(?P<column>\d{1,8}): (?P<kind>fatal error|error|internal compiler error): "
    r"(?P<message>.*?)(?: \[(?P<option>-W[\w=+-]+)\])?$",
    re.MULTILINE,
)
_OPENING = re.compile(r"^[\[{]", re.MULTILINE)

_MEANINGS = {
    "-Werror=unused-variable": "A variable is declared but never used; delete it, or use it.",
    "-Werror=unused-parameter": "A parameter is never used; use it, or write (void)name; in the function.",
    "-Werror=unused-function": "A static function is never called; delete it, or call it.",
    "-Werror=unused-but-set-variable": "A variable gets a value that nobody reads; delete it.",
    "-Werror=sign-compare": "An int is compared with an unsigned number (size_t, sizeof); make both the same type.",
    "-Werror=implicit-function-declaration": "A function is called that no header declares; include its header, or "
    "declare it before its first use.",
    "-Werror=int-conversion": "An int is used as a pointer or the other way round.",
    "-Werror=incompatible-pointer-types": "A pointer of one type is used where another type is wanted.",
    "-Werror=return-type": "A function that promises a value can end without returning one.",
    "-Werror=maybe-uninitialized": "gcc sees a way on which this variable is used before it gets a value.",
    "-Werror=uninitialized": "This variable is used before it gets a value.",
    "-Werror=pedantic": "This is a GNU extension; -std=c11 -Wpedantic allows standard C only.",
    "-Werror=missing-field-initializers": "An initialiser leaves fields out; name them all.",
    "-Werror=format=": "The format string of printf does not fit its arguments.",
    "-Werror=array-bounds": "gcc sees an access outside an array.",
    "-Werror=stringop-overflow=": "gcc sees a write past the end of an allocation; is the size in malloc right?",
    "-Werror=alloc-size-larger-than=": "gcc sees an allocation of an impossible size.",
    "-Werror=alloc-size": "Less is allocated than the type needs to which the pointer points; is the size right?",
    "-Werror=calloc-transposed-args": "calloc takes the number first, then the size of one: calloc(n, sizeof(int)).",
    "-Werror=use-after-free": "gcc sees memory used after it was freed.",
    "-Werror=free-nonheap-object": "gcc sees free() called on something that malloc did not return.",
    "-Werror=parentheses": "Put parentheses around this part, so that its meaning is plain.",
    "-Werror=pointer-arith": "Standard C has no arithmetic on void *; convert it to char * first, which counts bytes.",
    "-Werror=vla": "An array's length must be a constant here.",
    "-Werror=comment": "A comment starts inside a comment.",
    "-Werror=implicit-fallthrough=": "A case runs on into the next one; write break, or say it in a comment.",
    "-Werror=unused-label": "A label is never jumped to.",
    "-Werror=unused-value": "The value of this expression is thrown away.",
    "-Werror=type-limits": "This comparison is always true or always false.",
    "-Werror=unused-result": "The result of this call must be used.",
    "-Werror=overflow": "A number does not fit its type.",
    "-Werror=char-subscripts": "A char is used as an index.",
    "-Werror=strict-prototypes": "Write (void) for a function without parameters.",
}


_BY_MESSAGE = (
    (re.compile("multi-line comment"), "The line ends in a backslash, so the comment goes on in the next line."),
    (re.compile("empty translation unit"), "There is no code in the file; was it saved, and is it the right one?"),
    (re.compile("null character"), "There are null bytes in it, which are no text; save the file again, as UTF-8."),
)
"""Meanings by the text of a message, for messages without an option of their own."""
_UNKNOWN = re.compile(
    r"(?:unknown type name|implicit declaration of function) ['\u2018](?P<used>\w+)"
    r"|['\u2018](?P<undeclared>\w+)['\u2019] undeclared"
)
_DECLARED = {
    **dict.fromkeys(("bool", "true", "false"), "stdbool.h"),
    **dict.fromkeys(("size_t", "NULL", "offsetof", "ptrdiff_t"), "stddef.h"),
    **dict.fromkeys(("uintptr_t", "intptr_t", "uint8_t", "int32_t", "uint32_t", "int64_t", "uint64_t"), "stdint.h"),
    **dict.fromkeys(("malloc", "calloc", "realloc", "free", "abort", "exit", "abs"), "stdlib.h"),
    **dict.fromkeys(("memset", "memcpy", "memmove", "memcmp", "strlen", "strcmp"), "string.h"),
    **dict.fromkeys(("printf", "fprintf", "puts", "FILE", "stderr", "stdout"), "stdio.h"),
    **dict.fromkeys(("assert",), "assert.h"),
    **dict.fromkeys(("INT_MAX", "INT_MIN"), "limits.h"),
}
"""The headers that declare names of the standard library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One message of gcc.

    `option` is the option that made it an error, such as "-Werror=unused-variable"; "" where there is none.
    """

    kind: str
    message: str
    option: str
    file: str
    line: int
    """0 if gcc reports no line; the same holds for `column`."""
    column: int

    @property
    def is_error(self) -> bool:
        """Whether the message stops the build."""
        return self.kind in ("error", "fatal error")


def meaning(diagnostic: Diagnostic, header: str = "") -> str:
    """Return one sentence on what a message means in this homework; `header` is the name of the homework's header."""
    for pattern, sentence in _BY_MESSAGE:
        if pattern.search(diagnostic.message):
            return sentence
    if header and diagnostic.message.startswith(f"{header}: "):
        return f'Write #include "{header}" with quotes: between < and > gcc looks in its own folders only.'
    unknown = _UNKNOWN.search(diagnostic.message)
    name = (unknown["used"] or unknown["undeclared"]) if unknown is not None else ""
    if name in _DECLARED:
        return f"{name} is declared in <{_DECLARED[name]}>; include it."
    option = re.sub("^-W(?!error=)", "-Werror=", diagnostic.option)  # some are errors without -Werror from gcc 14 on
    if option in _MEANINGS:
        return _MEANINGS[option]
    if option.startswith("-Werror="):
        return "The strict flags make every warning an error (-Werror)."
    if diagnostic.kind == "fatal error":
        return (
            "Only this file, the official header and the headers of C on Linux are there; "
            "other files of yours and headers of Windows are not."
        )
    return "This is not valid C; gcc cannot go on here."


def parse(stderr: bytes) -> list[Diagnostic]:
    """Parse what gcc wrote. Other text, such as the closing line, is skipped."""
    diagnostics: list[Diagnostic] = []
    with contextlib.suppress(RecursionError):  # gcc never nests that deep
        for value in _values(stderr.decode(errors="replace")):
            diagnostics += islice(_from_json(value) if isinstance(value, list) else _from_sarif(value), _MOST)
    return diagnostics[:_MOST]


def parse_text(stderr: bytes) -> list[Diagnostic]:
    """Parse what gcc wrote for people: gcc 12 writes nothing for machines when it stops at `toolchain._MOST_ERRORS`."""
    return [
        _diagnostic(kind, message, option, (file, int(line), int(column)))
        for file, line, column, kind, message, option in islice(
            (match.groups("") for match in _FOR_PEOPLE.finditer(stderr.decode(errors="replace"))), _MOST
        )
    ]


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON lists and objects that begin at the start of a line; from gcc 14 on, each takes many lines."""
    decoder = json.JSONDecoder(strict=False)  # gcc leaves control characters of a message as they are
    end = failed = 0
    while failed < _MOST_FAILURES and (opening := _OPENING.search(text, end)):
        try:
            value, end = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            end, failed = opening.end(), failed + 1
        else:
            yield value


def _from_json(values: list[Any]) -> Iterator[Diagnostic]:
    """Read the format of gcc 9 to 14: a list of objects; `option` is missing in a message without an option.

    Notes are children and are skipped. After an error of the preprocessor, other errors are children too; they count.
    """
    for value in values:
        match value:
            case {"kind": str(kind), "message": str(message), **rest}:
                inner = rest.get("children")
                match rest.get("locations"):
                    case [{"caret": {"file": str(file), "line": int(line), "column": int(column)}}, *_]:
                        place = (file, line, column)
                    case _:
                        place = _NOWHERE
                yield _diagnostic(kind, message, str(rest.get("option", "")), place)
                if isinstance(inner, list):
                    yield from (child for child in _from_json(inner) if child.is_error)


def _from_sarif(value: dict[str, Any]) -> Iterator[Diagnostic]:
    """Read the format of gcc 13 and later: one SARIF object.

    `ruleId` is the option or, if there is none, the kind. A fatal error has no `level`, or the level "error". From
    gcc 16 on, braces in a message are doubled, as SARIF requires.
    """
    match value.get("runs"):
        case [{"results": list(results)}, *_]:
            for result in results:
                match result:
                    case {"ruleId": str(rule), "message": {"text": str(text)}, **rest}:
                        option = rule if rule.startswith("-") else ""
                        kind = rule if rule == "fatal error" else str(rest.get("level", rule))
                        message = text.replace("{{", "{").replace("}}", "}")
                        yield _diagnostic(kind, message, option, _sarif_place(rest))


def _sarif_place(result: Mapping[Any, Any]) -> tuple[str, int, int]:
    match result.get("locations"):
        case [{"physicalLocation": {"artifactLocation": {"uri": str(file)}, "region": dict(region)}}, *_]:
            match region.get("startLine", 0), region.get("startColumn", 0):
                case (int(line), int(column)):
                    return file, line, column
    return _NOWHERE


def _diagnostic(kind: str, message: str, option: str, place: tuple[str, int, int]) -> Diagnostic:
    file, line, column = place
    if not 0 <= line <= _MOST_LINE or column > _MOST_LINE:
        line = column = 0
    # where gcc knows no column, its JSON has column -1 and its SARIF has none
    return Diagnostic(kind=kind, message=message, option=option, file=Path(file).name, line=line, column=max(column, 0))


_CRASHED = (
    "gcc itself crashes on this file each time, and compiles another file here. That is a mistake in gcc; something "
    "unusual in the file brings it to light, such as thousands of nested brackets. Leave parts of the file out until "
    "gcc compiles it, and write the part that was left out in another way"
)
_WITHOUT_REASON = "it gives no reason. Compile the file yourself with the command of the handout"
_MOST_OF_ONE = 0.5
"""The CPU seconds of gcc after which a rejected file is not compiled with the student's own header."""
_ASSEMBLER = re.compile(r"^/\S+\.s:\d+: (Error: .*)", re.MULTILINE)  # the assembler's input is a temporary file
_QUOTED = re.compile(r"['‘](\w+)['’]")


def findings_of(
    project: CProject, work: Workspace, compiled: Compiled, *, source: bytes, own_headers: Mapping[str, bytes]
) -> list[Finding]:
    """Return the findings for a failed compilation. A finding at the use of a macro also has the macro's line.

    `own_headers` are the headers that were submitted with the file, by name.
    """
    macros = Macros.of(source.decode(errors="replace"))
    findings = _compile_findings(project, work, compiled, own_headers)
    return [_with_macro(project, finding, macros) for finding in findings]


def _compile_findings(
    project: CProject, work: Workspace, compiled: Compiled, own_headers: Mapping[str, bytes]
) -> list[Finding]:
    """Return the findings for a failed compilation, from gcc's machine-readable messages."""
    if compiled.too_large:
        return [build_finding(STOPPED, "what gcc makes of this file is larger than 64 MB; gcc was stopped")]
    if compiled.stopped or compiled.again is None:
        return [build_finding(STOPPED, "gcc needed too much time or memory for this file and was stopped")]
    if compiled.crashed:
        crashes = (text for text in parse_text(compiled.done.stderr) if not text.is_error and text.line)
        places = [SourceLine(file=crash.file, line=crash.line, column=crash.column) for crash in crashes]
        return [build_finding(STOPPED, _CRASHED, source=tuple(places[:1]))]
    errors = [diagnostic for diagnostic in parse(compiled.again.stderr) if diagnostic.is_error]
    errors = errors or [text for text in parse_text(compiled.done.stderr) if text.is_error]
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
        return [build_finding("compiler", message)]
    if not errors:
        text = "; ".join(dict.fromkeys(_ASSEMBLER.findall(compiled.done.stderr.decode(errors="replace")[:2000])))
        return [build_finding("compiler", f"gcc refuses the file: {text or _WITHOUT_REASON}")]
    return [_gcc_finding(project, error) for error in errors[:MOST_FINDINGS]]


def _blame_header(
    project: CProject, work: Workspace, own_headers: Mapping[str, bytes], errors: Sequence[Diagnostic]
) -> Finding | None:
    """Return a finding if the file compiles with the student's own header, else None.

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
    return build_finding("own-header", message, field=", ".join(missing))


def _gcc_finding(project: CProject, error: Diagnostic) -> Finding:
    option = f" [{error.option}]" if error.option else ""
    place = SourceLine(file=error.file or project.source_name, line=error.line, column=error.column)
    return build_finding(
        "compiler",
        f"{error.message}{option}",
        field=meaning(error, project.header.name),
        source=(place,) if error.line else (),
    )


def _with_macro(project: CProject, finding: Finding, macros: Macros) -> Finding:
    """Return a finding of gcc; if a macro's name is at its place, add the macro's line, where the mistake may be."""
    place = finding.source[0] if finding.kind == "compiler" and finding.source else None
    if place is None or place.file != project.source_name:
        return finding
    definition = macros.at(place.line, place.column)
    if definition is None:
        return finding
    macro = replace(place, line=definition.line, column=0)
    text = f"{finding.field} What is meant is written in the macro {definition.name}, at {macro}.".strip()
    return replace(finding, field=text, source=(place, macro))


_TOKEN = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)", re.MULTILINE)
_RENUMBERS = re.compile(r"^[ \t]*#[ \t]*(?:line\b|\d)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST_CHARACTERS = 1 << 20
"""The most characters of a source in which macros are looked for."""
_TAB = 8
"""gcc's -ftabstop: some releases count columns as a terminal shows them."""


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro, and the line of its definition."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Macros:
    """The lines of a source without comments, and its directives: line, whether it defines, name."""

    lines: tuple[str, ...] = ()
    directives: tuple[tuple[int, bool, str], ...] = ()

    @classmethod
    def of(cls, source: str) -> Macros:
        """Return the macros of a source; no macros if gcc numbers its lines differently, or it is very long."""
        if len(source) > _MOST_CHARACTERS or _RENUMBERS.search(source):
            return cls()
        text = _TOKEN.sub(_without_comment, source)
        directives = []
        line = end = 0
        for match in _DIRECTIVE.finditer(text):
            line, end = line + text.count("\n", end, match.start(2)), match.start(2)
            directives.append((line + 1, match[1] == "define", match[2]))
        return cls(tuple(text.split("\n")), tuple(directives))

    def at(self, line: int, column: int) -> Macro | None:
        """Return the macro whose name is at that place; line and column count from 1.

        Return None if another name is there, or if the macro has several definitions, from which conditions may select.
        """
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        for match in _NAME.finditer(text):
            before = text[: match.start()]
            if column - 1 in (len(before), len(before.encode()), len(before.expandtabs(_TAB))):
                return self._defined(match[0], line)
        return None

    def _defined(self, name: str, line: int) -> Macro | None:
        definitions: list[int] = []
        for place, defines, other in self.directives:
            if other == name and place < line:
                definitions = [*definitions, place] if defines else []
        return Macro(name, definitions[0]) if len(definitions) == 1 else None


def _without_comment(token: re.Match[str]) -> str:
    """Return a string as it is, and blanks for a comment; lines and columns stay."""
    return re.sub(r"[^\n]", " ", token[0]) if token[0].startswith("/") else token[0]
