"""The samples that inject something, names that do, and floods: every report stays whole, bounded and readable."""

from __future__ import annotations

import pytest

from grader.core.record import to_json
from grader.report import FORMATS
from grader.report.document import View
from grader.tests.support.programs import first_case, graded_text, right


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        (f"#error {'x' * 400_000}\n", "compile_error"),
        ("".join(f"#error {'x' * 50_000} {n}\n" for n in range(15)), "compile_error"),
        (
            "".join(f"__attribute__((constructor)) static void f{n}(void) {{ flood++; }}\n" for n in range(300)),
            "rejected",
        ),
        (f"__attribute__((constructor)) static void {'x' * 60_000}(void) {{ flood++; }}\n", "rejected"),
    ],
    ids=["one long message", "many long messages", "many findings", "a long name"],
)
def test_floods_of_findings_are_bounded(before: str, verdict: str) -> None:
    """However much gcc or the scan has to say, a record is a few kilobytes and a report some pages."""
    record = graded_text(f"extern volatile int flood;\nvolatile int flood;\n{before}" + right(), first_case())

    assert record.verdict == verdict
    assert 0 < len(record.findings) <= 20
    assert len(to_json(record)) < 200_000
    assert len(FORMATS["text"](record, View(instructor=True)).splitlines()) < 1200
