"""What a C lab is built from, and the handout's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-ggdb")
"""The handout's flags, in its order (Compilation Standard)."""


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

    @property
    def object_name(self) -> str:
        """The name of the file that the compile command writes."""
        return str(Path(self.source_name).with_suffix(".o"))
