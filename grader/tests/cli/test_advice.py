"""`grade run --advice` shows what costs no point."""

from __future__ import annotations

from grader.tests.support.command import FEW, SAMPLES, grade


def test_the_option_shows_advice_in_the_report() -> None:
    """Under its own heading, which says that it costs nothing; without the option there is none."""
    sample = SAMPLES / "accepted" / "scratch_array_one_pass"
    with_advice, without = grade("run", sample, *FEW, "--advice"), grade("run", sample, *FEW)

    assert with_advice.code == without.code == 0
    assert "Costs no point." in with_advice.out
    assert "create_sequence allocates memory here" in with_advice.out
    assert "Advice" not in without.out
