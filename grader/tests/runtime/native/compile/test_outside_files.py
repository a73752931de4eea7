"""Files of others that a compiler copies into a program are found, also where nothing keeps it from reading them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader.core.verdict import Verdict
from grader.tests.support.programs import first_case, graded_text, right


@pytest.mark.parametrize(
    "line",
    [
        '#include "{}"',
        '__asm__(".section .rodata\\n.incbin \\"{}\\"\\n.text");',
        '__asm__(".include \\"{}\\"");',
    ],
    ids=["include", "incbin", "assembler's include"],
)
@pytest.mark.parametrize("name", ["other.h", "with a space.h", "with$dollar.h"])
def test_a_file_from_elsewhere_is_a_compile_error(
    bare: Callable[..., None], tmp_path_factory: pytest.TempPathFactory, line: str, name: str
) -> None:
    """Whether the file is there for the compiler or not; nothing of it is run, and its name is told."""
    bare("landlock", "bubblewrap", "user")
    other = tmp_path_factory.mktemp("elsewhere") / name
    other.write_text("\n", encoding="utf-8")
    record = graded_text(right() + line.format(other) + "\n", first_case())

    assert record.verdict is Verdict.COMPILE_ERROR
    assert record.score == 0
    assert [finding.kind for finding in record.findings] == ["foreign-file"]
    assert name in record.findings[0].message


def test_a_way_out_of_the_folder_is_seen(bare: Callable[..., None]) -> None:
    """Relative names are looked at where they lead, and so are those of /proc."""
    bare("landlock", "bubblewrap", "user")
    for name in ("../../../../../../proc/self/environ", "/proc/self/../self/environ"):
        record = graded_text(f'#include "{name}"\n{right()}', first_case())

        assert [finding.kind for finding in record.findings] == ["foreign-file"]
