"""Files of others that a compiler copies into a program are found, also where nothing keeps it from reading them."""

from __future__ import annotations

from collections.abc import Callable

from grader.tests.support.programs import first_case, graded_text, right


def test_a_way_out_of_the_folder_is_seen(bare: Callable[..., None]) -> None:
    """Relative names are looked at where they lead, and so are those of /proc."""
    bare("landlock", "bubblewrap", "user")
    for name in ("../../../../../../proc/self/environ", "/proc/self/../self/environ"):
        record = graded_text(f'#include "{name}"\n{right()}', first_case())

        assert [finding.kind for finding in record.findings] == ["foreign-file"]
