"""Find lines that the first Valgrind process could not name: only when something is wrong, in one further process.

Memcheck has no memory that may be read but not written. So a store into a shared block, and a wrong copy, have their
lines only where that block is forbidden altogether. And it takes additional time to find where an unset value came
from, which a correct program need not spend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grader.core.difference import SHARED_MEMORY
from grader.core.model import Access
from grader.core.verdict import Advice, Visibility
from grader.runtime.comparison import Comparison
from grader.runtime.native.valgrind.contract import Allowed
from grader.runtime.native.valgrind.memory_faults import Checked, MemoryFault

_MOST_CASES = 3


def cases_without_line(
    comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed, shown: str | None
) -> list[int]:
    """Return a few cases whose first difference is in memory that the operation also reads, with no line known.

    `shown` is the case of the diagnosis; it goes first, then short public ones.
    """
    numbers = [
        number for number, comparison in enumerate(comparisons) if _lacks_line(number, comparison, checked, allowed)
    ]

    def place(number: int) -> tuple[bool, bool, int]:
        case = comparisons[number].case
        return case.name != shown, case.visibility is Visibility.HIDDEN, len(case.trace.operations)

    return sorted(numbers, key=place)[:_MOST_CASES]


def cases_with_unset(checked: Checked) -> list[int]:
    """Return a few cases in which a value was used that was never set."""
    return list(dict.fromkeys(error.case for error in checked.errors if error.unset))[:_MOST_CASES]


def completed(checked: Checked, more: Checked) -> Checked:
    """Return what is known after the further process. It adds lines, but neither errors nor cases."""
    origins = {_identity(error): error.auxiliary for error in more.errors if error.unset}
    return replace(
        checked,
        errors=tuple(
            replace(error, auxiliary=error.auxiliary or origins.get(_identity(error), ())) for error in checked.errors
        ),
        stores=more.stores | checked.stores,
        copies=more.copies,
        processes=checked.processes + more.processes,
        cpu_seconds=checked.cpu_seconds + more.cpu_seconds,
    )


def advice(comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed) -> Iterator[Advice]:
    """Yield advice on stores by calls that may touch nothing, when no effect is left afterwards: each line once.

    Only public cases are used: by its choice of lines a program could otherwise reveal a hidden case.
    """
    seen = set()
    for breach in checked.breaches:
        comparison = comparisons[breach.case]
        touches_nothing = tuple(allowed[breach.case][breach.operation : breach.operation + 1]) == ((),)
        visible = _touched(comparison, breach.operation)
        hidden = comparison.case.visibility is Visibility.HIDDEN
        if hidden or not breach.stores or visible or not touches_nothing or breach.lines[:1] in seen:
            continue
        seen.add(breach.lines[:1])
        call = comparison.case.trace.operations[breach.operation].name
        yield Advice(
            kind="breach",
            message=f"{call} writes here to memory that it should leave alone, though nothing of it is left afterwards",
            case=comparison.case.name,
            operation=breach.operation + 1,
            source=breach.lines,
        )


def _lacks_line(number: int, comparison: Comparison, checked: Checked, allowed: Allowed) -> bool:
    """Whether the last operation with a contract went wrong, had to read, and has no line yet."""
    spans = allowed.get(number, ())
    last = len(spans) - 1
    return (
        last >= 0
        and any(span.access is Access.READ for span in spans[last])
        and _touched(comparison, last)
        and (number, last) not in checked.stores
        and number not in {*checked.stopped, *checked.hung, *checked.unchecked}
        and comparison.played.complete
    )


def _touched(comparison: Comparison, operation: int) -> bool:
    """Whether the native pass shows a difference in shared memory."""
    return any(
        SHARED_MEMORY in difference.tags
        for deviation in comparison.deviations
        if deviation.operation == operation
        for difference in deviation.judgement.differences
    )


def _identity(error: MemoryFault) -> tuple[object, ...]:
    return error.case, error.operation, error.kind, error.lines
