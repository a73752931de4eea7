"""Proportion: over all labelled samples, one defect costs what it is worth, and is called by its name.

What samples keep stands in `keeps.toml`. `low` in a label says why a single defect may keep fewer than 30 points.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader.assignment.samples import label_of, samples_in
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.judge.calls import Patterns
from grader.judge.mistakes import MistakeTable
from grader.labs import LABS, open_lab
from grader.labs.paged_kv.lab import lab
from grader.tests.support.command import ROOT
from grader.tests.support.graded import all_graded

_HAVE_LINES = {Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED, Verdict.MEMORY_ERROR, Verdict.MEMORY_LEAK}
_NOT_RUN = {Verdict.COMPILE_ERROR, Verdict.REJECTED}


@cache
def wrong(lab_name: str) -> dict[Path, dict[str, Any]]:
    """The labels of a lab's wrong samples, but for hostile ones: those are no mistakes."""
    folders = samples_in(ROOT / "submissions" / lab_name, LABS[lab_name].source_name)
    return {
        folder: label_of(folder)
        for folder in folders
        if folder.parent.name != Verdict.ACCEPTED and not folder.name.startswith("hostile_")
    }


def is_single(sample: Path) -> bool:
    """Has it one defect, and can it run?"""
    return len(label_of(sample).get("rules", ())) == 1 and sample.parent.name not in _NOT_RUN


def keeps(lab_name: str) -> dict[str, float]:
    """What single defects keep, by their names: the middle of the range."""
    return {
        sample.name: statistics.mean(label["keeps"]) for sample, label in wrong(lab_name).items() if is_single(sample)
    }


def cheapest(lab_name: str, count: int = 12) -> str:
    """The lowest points, for a message."""
    lowest = sorted(keeps(lab_name).items(), key=lambda item: item[1])[:count]
    return "\n".join(f"{points:4} {name}" for name, points in lowest)


@pytest.mark.parametrize("lab_name", LABS)
def test_single_defects_keep_a_median_of_90_points(lab_name: str) -> None:
    """One mistake, most of the points."""
    assert statistics.median(keeps(lab_name).values()) >= 90, cheapest(lab_name)


@pytest.mark.parametrize("lab_name", LABS)
def test_one_in_ten_single_defects_at_most_keeps_less_than_72_points(lab_name: str) -> None:
    """Also those that show in many places."""
    assert statistics.quantiles(keeps(lab_name).values(), n=10)[0] >= 72, cheapest(lab_name, 24)


@pytest.mark.parametrize("lab_name", LABS)
def test_no_single_defect_keeps_less_than_30_points_unless_its_label_says_why(lab_name: str) -> None:
    """And no label says it in vain."""
    low = {name for name, points in keeps(lab_name).items() if points < 30}

    assert low == {sample.name for sample, label in wrong(lab_name).items() if "low" in label}


def test_a_program_without_copy_on_write_keeps_at_most_80_points() -> None:
    """It is what the homework is about; all else is right."""
    assert 70 <= keeps("paged_kv")["no_copy_on_write"] <= 80
    assert keeps("paged_kv")["new_page_count_not_set"] < 97


def test_there_are_many_ways_to_be_wrong() -> None:
    """At least sixty, and at least two for each rule."""
    first = [label["rules"][0] for label in wrong("paged_kv").values()]
    missing = {rule.id: first.count(rule.id) for rule in lab().rubric.rules if first.count(rule.id) < 2}

    assert len(first) >= 60
    assert missing == {}


def graded(lab_name: str, samples: list[Path]) -> Iterator[tuple[Path, Record, str]]:
    """Yield the wrong ones of these with their records, and the rule of the diagnosis."""
    chosen = [sample for sample in samples if sample in wrong(lab_name)]
    for sample, record in zip(chosen, all_graded(lab_name, chosen), strict=True):
        yield sample, record, record.first_cause.rule if record.first_cause is not None else "nothing"


@pytest.mark.timeout(1800)  # the first of these tests grades whatever nobody has graded yet
@pytest.mark.parametrize("lab_name", LABS)
def test_the_rule_of_the_first_cause_lost_points(lab_name: str, samples_of: Callable[[str], list[Path]]) -> None:
    """A report that begins with a rule of full marks contradicts itself. A rule may be worth nothing alone."""
    spared = [
        f"{sample.name}: {named}"
        for sample, record, named in graded(lab_name, samples_of(lab_name))
        if any(rule.rule == named and rule.points == rule.max_points > 0 for rule in record.rules)
    ]

    assert spared == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lab_name", LABS)
def test_the_rule_of_the_first_cause_is_that_of_its_sentence(
    lab_name: str, samples_of: Callable[[str], list[Path]]
) -> None:
    """The known mistakes say which rules a sentence belongs to; those without one quote whatever decided."""
    chosen = open_lab(lab_name)
    quoting_all = {mistake.rule for mistake in chosen.mistakes if not mistake.clause}
    table, names = (
        MistakeTable(chosen.mistakes, Patterns((), {})),
        {text: name for name, text in chosen.grammar.clauses.items()},
    )
    others = []
    for sample, record, named in graded(lab_name, samples_of(lab_name)):
        clause = record.first_cause.clause if record.first_cause is not None else ""
        rules = table.rules_of(names.get(clause.partition(": ")[2], "")) if clause else ()  # a build has its own
        if rules and named not in {*rules, *quoting_all}:
            others.append(f"{sample.name}: {named}, {clause}")

    assert others == []


@pytest.mark.thorough
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("lab_name", LABS)
def test_the_diagnosis_names_the_labelled_rule(lab_name: str, samples_of: Callable[[str], list[Path]]) -> None:
    """Of at least 95 of 100 samples, or another one that the label allows."""
    single = [each for each in graded(lab_name, samples_of(lab_name)) if each[0].parent.name not in _NOT_RUN]
    rules = {sample: {*label_of(sample)["rules"], *label_of(sample).get("also", ())} for sample, _, _ in single}
    missed = [
        f"{named:24} instead of {', '.join(sorted(rules[sample])):24} {sample.name}"
        for sample, _, named in single
        if named not in rules[sample]
    ]
    table = "\n".join(missed)
    print(table)  # noqa: T201 - read with -s, or in the message

    assert len(missed) <= 0.05 * len(single), f"{len(missed)} of {len(single)}:\n{table}"


@pytest.mark.timeout(1800)
def test_every_wrong_sample_is_told_what_to_look_at(samples_of: Callable[[str], list[Path]]) -> None:
    """A summary; where it runs also a hint, a case and an operation; nearly always the line of a crash."""
    wordless, blind, crashing = [], [], 0
    for sample, record, _ in graded("paged_kv", samples_of("paged_kv")):
        first = record.first_cause
        if first is None or not first.summary:
            wordless.append(sample.name)
            continue
        if is_single(sample) and not (first.cases[0] and first.operation and first.hint):
            wordless.append(sample.name)
        if sample.parent.name in _HAVE_LINES:
            crashing += 1
            blind += [] if first.lines else [sample.name]

    assert wordless == []
    assert crashing
    assert len(blind) <= 0.05 * crashing, blind
