"""Files from outside that gcc and the assembler read: `#include`, `.incbin`, `#embed`.

These are neither the submission's nor the system's. Where no protection prevents it, gcc and the assembler can read
whatever the user can. A program with such a file in it is not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from grader.system.sandbox import Workspace

_MOST_BYTES = 256 << 10
"""The size limit of a list: each path in it costs a look-up of each of its parts. All headers of the system: 30 KB."""
_LISTS = ("included.d", "assembled.d")
TELL = ("-MD", "-MF", _LISTS[0], f"-Wa,--MD,{_LISTS[1]}")
"""Options of gcc that make gcc and the assembler list the files that they read."""

_NAME = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)


def outside_files(work: Workspace) -> list[str]:
    """Return the names of the files from outside that were read in a compilation with `TELL`."""
    if any(
        path.is_file() and path.stat().st_size > _MOST_BYTES
        for path in (work.folder / list_file for list_file in _LISTS)
    ):
        return [f"a list of files of more than {_MOST_BYTES >> 10} KB"]
    home = work.folder.resolve()
    names = dict.fromkeys(name for list_file in _LISTS for name in _names(work.folder / list_file))
    paths = {name: Path(home, name).resolve() for name in names}
    return [name for name, path in paths.items() if not path.is_relative_to(home) and not work.may_be_read(path)]


def _names(path: Path) -> Iterator[str]:
    """Yield the names behind the colon of a rule for make; none where the tool wrote no list."""
    if not path.is_file() or path.is_symlink():
        return
    _, _, names = path.read_text(encoding="utf-8", errors="replace").partition(": ")
    for name in _NAME.findall(names.replace("\\\n", " ")):
        yield re.sub(r"\\(.)", r"\1", name).replace("$$", "$")
