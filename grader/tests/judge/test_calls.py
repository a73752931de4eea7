"""What all wrong calls share and no right one: said only with evidence, and of public cases only."""

from __future__ import annotations

from grader.tests.support.programs import by_hand, judged, made


def test_what_all_failing_cases_are_set_up_with_is_told() -> None:
    """It must be true of every failing case, and not of every case."""
    plain, falling = (
        made(name, "create_sequence 1 5 -> seq", header=f"pool_blocks = 4; heap_falls = {falls}", rule="free-count")
        for falls, name in enumerate(("plain", "falling"))
    )
    fails, fails_plain = (by_hand(case, (1, 6, 2)) for case in (falling, plain))
    told = [
        judged(*played)[0]
        .causes[0]
        .hint.endswith(
            " It goes wrong only in cases where each allocation lies at a lower address than the one before."
        )
        for played in ([fails, by_hand(plain)], [fails, fails_plain], [fails])
    ]

    assert told == [True, False, False]
