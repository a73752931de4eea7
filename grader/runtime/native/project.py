"""What a C lab supplies, and the programs that are built from a lab and a submission."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.core.case import Signature
from grader.core.errors import InputError
from grader.core.model import ModelFactory
from grader.runtime.protocol import Program
from grader.system.sandbox import Workspace
from reference.operation import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeProgram(Program):
    """A built program. Its file is written again before every use, because a run may have replaced it."""

    checked: bytes = b""
    """The same program, built for Valgrind."""

    def place(self, work: Workspace, *, checked: bool = False) -> str:
        """Write the program into the workspace and return its name there."""
        name = "checked" if checked else "program"
        work.add(name, self.checked if checked else self.content, mode=0o755)
        return name


def native_program(program: Program) -> NativeProgram:
    """Return the same program, typed as one that this runtime's build made."""
    assert isinstance(program, NativeProgram)
    return program


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """How the grader calls the driver of a lab, the C file `CProject.driver`."""

    operations: Mapping[str, Signature]
    """Signatures by the name of the operation, in the order of the driver's enum of codes."""
    settings: Callable[[Trace], tuple[int, ...]]
    """The numbers that the driver gets before the operations of a trace."""
    places: Callable[[bytes, int], Mapping[str, int]]
    """Returns the numbers of the words of a record with this many targets, by the names that differences use."""
    model: ModelFactory
    """The lab's model, which says which bytes of an engine's memory an operation may touch."""

    @property
    def codes(self) -> dict[str, int]:
        """The driver's number of each operation."""
        return {name: number for number, name in enumerate(self.operations)}


FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-ggdb")
"""The handout's flags, in its order (Compilation Standard)."""


_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_MOST_CHARACTERS = 400
"""A body with more characters has more than a statement that returns."""
_ONLY_RETURNS = re.compile(
    r"\s*(?:\(\s*void\s*\)\s*\w+\s*;\s*)*"  # unused parameters
    r"(?:return\b\s*(?:\([\w\s]+\*\s*\))?[\s(]*(?:NULL|-?\s*\d+)?[\s)]*;\s*)?"
)


_DECLARED = re.compile(r"^(\w[\w ]*[\s*]+)(\w+)\(([^;{}]*)\);", re.MULTILINE)
_PARAMETER = re.compile(r"\s*(?:void|.*[\w*]\s*[\s*](\w+)(?:\[\w*\])?)\s*", re.DOTALL)


def functions_of(header: Path, refusing: Mapping[str, str]) -> dict[str, str]:
    """Return a stub of each function that a header declares; `refusing` has the return values of some stubs.

    Other stubs return 0 or NULL. Raises `InputError` for a parameter without a name.
    """
    stubs = {}
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), header.read_text(encoding="utf-8"))
    for declared in _DECLARED.finditer(text):
        returns, name, parameters = declared.groups()
        named = [match[1] for each in parameters.split(",") if (match := _PARAMETER.fullmatch(each))]
        if len(named) < len(parameters.split(",")):
            line = text.count("\n", 0, declared.start()) + 1
            raise InputError(f"{header}:{line}: {name} has a parameter without a name; name it, as in (int number)")
        unused = "".join(f"(void){each}; " for each in named if each)
        value = refusing.get(name, "NULL" if "*" in returns else "0")
        result = "" if returns.split() == ["void"] else f"return {value}; "
        stubs[name] = f"{returns}{name}({parameters}) {{ {unused}{result}}}"
    return stubs


@dataclass(frozen=True, slots=True, kw_only=True)
class CProject:
    """What a C lab is built from."""

    source_name: str
    header: Path
    driver: Path
    functions: Mapping[str, str]
    """The functions that the handout demands, each with a stub that returns the refusing value."""

    @property
    def compile_command(self) -> tuple[str, ...]:
        """The handout's command for an object file."""
        return ("gcc", *FLAGS, "-c", self.source_name, "-o", self.object_name)

    def command_with(self, source: str, program: str) -> str:
        """Return the handout's command that makes a program of the submission and another source."""
        return " ".join(("gcc", *FLAGS, self.source_name, source, "-o", program))

    @property
    def stubs(self) -> str:
        """A C file with all stubs: a submission that does nothing."""
        return f'#include "{self.header.name}"\n' + "".join(f"{stub}\n" for stub in self.functions.values())

    def unwritten(self, source: bytes) -> frozenset[str]:
        """Return the demanded functions whose body is empty or only returns, as far as their text shows it.

        This takes linear time, whatever the file contains. A function that a macro writes counts as written.
        """
        text = _COMMENT.sub(" ", source.decode("utf-8", "replace"))
        return frozenset(
            name
            for name in self.functions
            for body in re.findall(rf"\b{name}\s*\([^;{{}}()]*\)\s*\{{([^{{}}]*)\}}", text)
            if len(body) < _MOST_CHARACTERS and _ONLY_RETURNS.fullmatch(body)
        )

    @property
    def object_name(self) -> str:
        """The name of the file that the compile command writes."""
        return str(Path(self.source_name).with_suffix(".o"))
