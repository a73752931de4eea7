"""Cases that share a process give what each of them gives alone, and what is not exactly right is played alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader.core.optional_stages import OptionalStages
from grader.runtime.native.native_played import NativePlayed, NativeReplayed
from grader.runtime.native.project import NativeProgram
from grader.runtime.native.replay import replay
from grader.system import sandbox
from grader.system.budget import Budget
from grader.system.sandbox import Workspace
from grader.tests.support.programs import POSIX, TENTH, around, first_case, made, native, second_case

_FALLING = made(
    "falling",
    "create_sequence 2 3 -> seq; append_kv 2 9 -> 0; free_sequence 2 -> 0",
    header="pool_blocks = 4; heap_falls = 1",
)
_CASES = (first_case(), second_case(), _FALLING, first_case())
"""The second has no append to sequence 2, before which the programs below do something."""


def _put(statements: str, after: str = "", *, top: str = POSIX) -> str:
    return around("append_kv", f"if (seq_id == 2) {{ {statements} }}", after, top=f"{top}#include <stdlib.h>\n")


def _played(source: str, *, together: bool) -> tuple[NativeReplayed, float]:
    """What a fresh workspace gives, and the seconds of the submission that it costs."""
    with sandbox.workspace(Budget(TENTH)) as work:
        built = native().build(work, source.encode(), beside={}, optional=OptionalStages())
        assert isinstance(built.program, NativeProgram)
        before = work.budget.paid
        replayed = replay(work, built.program, _CASES, driver=native().driver, together=together)
        return replayed, work.budget.paid - before


def _seen(played: NativePlayed) -> tuple[object, ...]:
    """All that is judged of a case; of a hang, the operation."""
    steps = [
        (step.record, step.allocations, step.frees, step.bad_frees, step.broken, step.live) for step in played.steps
    ]
    fault = played.fault and (played.fault.operation, played.fault.signal, not played.hung and played.fault.stack)
    return steps, played.events, fault, played.left, played.misfit, played.hung, played.ended, played.status


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many programs were started for replays since the test began."""
    started: list[object] = []
    run = Workspace.run

    def counted(self: Workspace, command: object, **options: object) -> object:
        started.extend([command] if callable(command) else [])
        return run(self, command, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Workspace, "run", counted)
    return lambda: len(started)


def test_a_right_program_is_started_once(programs: Callable[[], int]) -> None:
    """One process plays all cases, and nothing is played alone."""
    replayed, _ = _played(_put(""), together=True)

    assert programs() == 1
    assert all(played.as_expected for played in replayed.played)


@pytest.mark.parametrize(
    "statements",
    [
        "static int calls; if (calls++) return -1;",
        "static int calls = 7; if (calls++ > 7) return -1;",
        "static _Thread_local int calls; if (calls++) return -1;",
        "int *volatile p = malloc(8), old = p[60]; free(malloc(4096)); free(p); if (old && kv_data != 9) return -1;",
        'puts("x"); fputs("y", stderr);',
    ],
)
def test_what_a_case_leaves_no_other_case_finds(statements: str, programs: Callable[[], int]) -> None:
    """Variables have their first values again, and memory its zeros: the program is right in each case."""
    together, _ = _played(_put(statements), together=True)

    assert programs() == 1
    alone, _ = _played(_put(statements), together=False)
    assert [_seen(played) for played in together.played] == [_seen(played) for played in alone.played]
    assert together.output == alone.output


@pytest.mark.parametrize(
    ("statements", "after"),
    [
        ("return -1;", ""),
        ("", "if (seq_id == 2) engine->free_local_blocks++;"),
        ("char *volatile lost = malloc(3); lost[0] = 1;", ""),
        ("volatile char *volatile p = malloc(3); p[5] = 1; free((char *)p);", ""),
        ("char *volatile p = malloc(3); free(p); free(p);", ""),
        ("*(volatile int *volatile)NULL = 1;", ""),
        ("exit(3);", ""),
        ("_exit(0);", ""),
        ("raise(SIGKILL);", ""),
        ("for (;;) { }", ""),
        ("memset(engine, 0x5a, 4096);", ""),
    ],
)
def test_what_goes_wrong_is_played_alone(statements: str, after: str, programs: Callable[[], int]) -> None:
    """Records, events, the end and what is printed are those of a process for each case; the attempt costs nothing."""
    source = _put(statements, after, top=f"{POSIX}#include <string.h>\n")
    alone, paid = _played(source, together=False)
    started = programs()
    together, paid_together = _played(source, together=True)

    assert programs() == 2 * started + 1
    assert [_seen(played) for played in together.played] == [_seen(played) for played in alone.played]
    assert together.output == alone.output
    assert [played.ending and played.ending.sentence for played in together.played] == [
        played.ending and played.ending.sentence for played in alone.played
    ]
    assert paid_together < 2 * paid + 0.1


def test_a_program_that_is_slow_in_one_process_has_its_whole_time_alone() -> None:
    """The limit of the attempt is no limit of the submission."""
    slow = "for (volatile int i = 0; i < 300000; i++) { }"
    together, _ = _played(around("append_kv", slow), together=True)

    assert all(played.complete and not played.no_time for played in together.played)
