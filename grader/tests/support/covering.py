"""Which labelled samples `scripts/test` grades: few that together show what all samples of a lab show.

A sample shows its verdict, the rule of its label, its kind of attack, its style where it is a right program, and what
its report says: entries of the table of mistakes and sentences of the handout. What the report of an attack says may
differ from run to run. The set is chosen greedily by `scripts/golden` and written down in
`submissions/LAB/covering.toml`, each sample with what it was chosen for. `scripts/test --all` grades all samples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from grader.assignment.lab import Mistake
from grader.assignment.samples import label_of
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs import open_lab

UNSTEADY = ("lookup_returns_the_next_sequence",)
"""Samples whose behaviour depends on addresses: no two gradings of them agree."""

_FILLED_IN = re.compile(r"\{\w+\}")
"""A place in a mistake's hint that is filled in."""
_LONGEST = 70
"""So many characters of a hint are written down."""
_HEAD = (
    "# Written by scripts/golden: the samples that scripts/test grades, each with what it was chosen for.\n"
    "# Together they show every verdict, rule, attack, style, known mistake and sentence that any sample shows.\n"
)


def shown_by(lab_name: str, sample: Path, record: Record) -> frozenset[str]:
    """Return what a sample and its record show, as words for `covering.toml`."""
    unsteady = "attack" in label_of(sample) or sample.name in UNSTEADY
    reported = () if unsteady else _reported(lab_name, record)
    return frozenset({*claimed_by(sample), *reported})


def claimed_by(sample: Path) -> Iterator[str]:
    """Yield what the label of a sample and its place say, as words for `covering.toml`."""
    label, verdict = label_of(sample), sample.parent.name
    yield f"verdict {verdict}"
    yield from (f"rule {rule}" for rule in label.get("rules", ())[:1])
    if "attack" in label:
        yield f"attack {label['attack']}: {verdict}"
    elif verdict == Verdict.ACCEPTED:
        yield f"style {sample.name}"


def all_known(lab_name: str) -> frozenset[str]:
    """Return what samples of a lab might show in their reports: each entry of its table of mistakes."""
    return frozenset(_words(mistake) for mistake in open_lab(lab_name).mistakes)


def covering(shown: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return samples by their names, with what each adds, that show all that is shown: most new things first."""
    left = set[str]().union(*shown.values())
    chosen: dict[str, frozenset[str]] = {}
    while left:
        name = max(sorted(shown), key=lambda name: len(shown[name] & left))
        chosen[name] = shown[name] & left
        left -= shown[name]
    return chosen


def covering_text(lab_name: str, shown: Mapping[str, frozenset[str]]) -> str:
    """Return the text of `covering.toml`."""
    chosen = covering(shown)
    unshown = all_known(lab_name).difference(*chosen.values())
    lines = [_HEAD, "unshown = [\n", *(f"    {_text(words)},\n" for words in sorted(unshown)), "]\n\n[samples]\n"]
    for name in sorted(chosen):
        lines += [f"{_text(name)} = [\n", *(f"    {_text(words)},\n" for words in sorted(chosen[name])), "]\n"]
    return "".join(lines)


def mistake_of(lab_name: str, hint: str) -> Mistake | None:
    """Return the mistake with this hint: of those whose text fits, the one with the most text of its own."""
    fitting = [mistake for mistake, pattern in _patterns(lab_name) if pattern.match(hint)]
    return max(fitting, key=lambda mistake: len(_FILLED_IN.sub("", mistake.hint)), default=None)


def _reported(lab_name: str, record: Record) -> Iterator[str]:
    for cause in record.causes:
        if cause.clause:
            yield f"sentence {cause.clause}"
        mistake = mistake_of(lab_name, cause.hint)
        if mistake is not None:
            yield _words(mistake)


def _words(mistake: Mistake) -> str:
    """Return the beginning of its hint, by which a reader finds it."""
    hint = " ".join(mistake.hint.split()).removeprefix("{wanted}. ")
    return f"mistake {hint[:_LONGEST]}"


def _text(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)


@cache
def _patterns(lab_name: str) -> list[tuple[Mistake, re.Pattern[str]]]:
    """Return each mistake with a pattern of its hint."""
    mistakes = open_lab(lab_name).mistakes
    texts = [" ".join(mistake.hint.split()) for mistake in mistakes]
    return [
        (mistake, re.compile(".*?".join(map(re.escape, _FILLED_IN.split(text)))))
        for mistake, text in zip(mistakes, texts, strict=True)
    ]
