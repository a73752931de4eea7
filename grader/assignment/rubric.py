"""Load rubric.toml, handout.toml and mistakes.toml of an assignment: rules, sentences of the handout, known mistakes.

A known mistake says what was seen, which rule and sentence it breaks, and the hint for the student. mistakes.toml has a
table [[mistakes]] for each. The first entry that fits is used, so special entries come before general ones:

    [[mistakes]]
    calls    = ["give"]              # the call that went wrong; omitted: any
    facets   = ["free"]              # the facet that differs ("reply" too); omitted: any
    kinds    = ["hang"]              # instead of facets: a kind of finding, such as "exception", "hang", "invariant"
    circumstances = ["twice"]        # all of these must hold for the call. Each is one of: the lab's word for a
                                     # situation; the name of the sentence by which the reference decided; the exception
                                     # with which the reference refused the call, such as "ValueError"
    part     = "block 0"             # a part of the name of the field that differs
    never    = ["take"]              # none of these calls did its work in any case
    rule     = "free"                # a rule of rubric.toml
    where    = "no-copy-needed"      # a condition that needs code: one of PREDICATES, or of those that the lab gives
    sentence = "Task 2/order"        # a name of handout.toml; omitted: the sentence by which the reference decided
    hint     = "..."                 # may use {call}, {field}, {expected} and others (`grader.assignment.lab.Mistake`),
                                     # and numbers of the assignment: {SLOTS}

If the sentence depends on the call, write a table: sentence = { touch = "Task 2/touch", reset = "Task 3/reset" }.
A table [kinds] before the first entry has words that mean several kinds: stops = ["crash", "hang"].
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path

from grader.assignment.input_file import TomlTable, cut, line_of, short
from grader.assignment.lab import Mistake, Predicate
from grader.core.case import Number
from grader.core.errors import RubricError
from grader.core.judgement import Judgement
from grader.core.rubric import Release, Rubric, Rule
from grader.core.verdict import Feedback, Judged

RUBRIC_FILE = "rubric.toml"
SEED = Number("seed", 0, 2**31 - 1)
_POINTS = Number("points", 0, 100)
_HAND_INS = Number("hand_ins", 1, 1000)
_TIME = "from = 2026-12-01T00:00:00Z"
_AT, _ANY = " at ", "any"


def load(
    path: Path, facets: frozenset[str], calls: Collection[str], constants: Mapping[str, int] | None = None
) -> Rubric:
    """Load a rubric for records with these facets and cases with these calls; titles may name `constants` in braces.

    Raises `RubricError` with all mistakes.
    """
    file = TomlTable.read(path, RubricError, constants)
    file.check_keys(("seed", "feedback", "release", "rules"))
    seed = file.number("seed", SEED, needed=True)
    rules = [_rule(name, table, facets, calls) for name, table in file.tables("rules").items()]
    rubric = Rubric(
        seed=seed or 0,
        rules=tuple(rules),
        feedback=_feedback(file, Feedback.FULL),
        releases=tuple(_release(table) for table in file.rows("release")),
    )
    if not file.problems:
        for line, message in _of_the_whole(rubric, file.text):
            file.complain_at(line, message)
    file.check()
    return rubric


def load_sentences(path: Path, name: str, constants: Mapping[str, int] | None = None) -> dict[str, str]:
    """Return the table `name` of handout.toml, which has sentences by name: "clauses", or the optional "situations".

    The sentences may name `constants` in braces. Raises `RubricError`.
    """
    file = TomlTable.read(path, RubricError, constants)
    sentences = file.values.get(name, {} if name == "situations" else None)
    if not isinstance(sentences, dict) or not all(isinstance(sentence, str) for sentence in sentences.values()):
        file.complain(name, f'write a table [{name}] of name = "sentence"')
        raise RubricError(file.problems)
    table = replace(file, values=sentences, name=name)
    sentences = {key: table.filled(key, sentence) for key, sentence in sentences.items()}
    file.check()
    return sentences


def _feedback(table: TomlTable, default: str = "") -> Feedback:
    return Feedback(table.choice("feedback", list(Feedback), default) or Feedback.FULL)


def _release(table: TomlTable) -> Release:
    table.check_keys(("from", "hand_ins", "feedback"))
    start, hand_ins = table.values.get("from"), table.number("hand_ins", _HAND_INS)
    if start is not None and (not isinstance(start, datetime) or start.tzinfo is None):
        table.complain("from", f"release.from must be a time with its zone: write {_TIME}")
        start = None
    elif start is None and "hand_ins" not in table.values:
        table.complain("from", f"a release needs a time or a number of hand-ins: write {_TIME} or hand_ins = 3")
    return Release(feedback=_feedback(table), start=start, hand_ins=hand_ins or 0)


def _rule(name: str, table: TomlTable, facets: Collection[str], calls: Collection[str]) -> Rule:
    before = len(table.problems)
    table.check_keys([field.name for field in fields(Rule) if field.name not in ("id", "facets_at")])
    everywhere, facets_at = _facets(table, facets, calls)
    rule = Rule(
        id=name,
        points=table.number("points", _POINTS, needed=True) or 0,
        title=table.sentence("title", '"...", what a correct program does'),
        handout=table.string("handout", '"Task 4; Part 2.2", where the handout requires it'),
        facets=everywhere,
        facets_at=facets_at,
        judged=Judged(table.choice("judged", list(Judged), Judged.CASES) or Judged.CASES),
        calls=table.words("calls", calls),
        allocated_by=table.words("allocated_by", calls),
        covers_cleanup=table.switch("covers_cleanup"),
    )
    if len(table.problems) == before and (rule.judged is Judged.CASES) != bool(rule.facets | rule.facets_at):
        table.complain("judged", f'{cut(table.name)} needs either facets or judged = "build" and the like')
    return rule


def _facets(
    table: TomlTable, facets: Collection[str], calls: Collection[str]
) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Return the facets on which a rule is judged at all its calls, and pairs (facet, call) for single calls.

    A rule writes "free" for all its calls, "free at touch" for one call, "any at touch" for all facets of one call.
    """
    words = table.values.get("facets", [])
    several = isinstance(words, list) and all(isinstance(word, str) for word in words)
    pairs = [word.split(_AT) for word in words if _AT in word] if several else []
    alone = replace(table, values={"facets": [word for word in words if _AT not in word] if several else words})
    for pair in pairs:
        for word, known in zip(pair, ((*facets, _ANY), calls), strict=False):
            if word not in known or len(pair) != 2:
                table.complain("facets", f"unknown word {short(word)} in {table.name}.facets{table.hint(word, known)}")
    at = {(facet, call) for word, *_, call in pairs for facet in (facets if word == _ANY else (word,))}
    return alone.words("facets", sorted(facets)), frozenset(at)


def _of_the_whole(rubric: Rubric, text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for mistakes that concern several rules. Each single rule was checked before."""
    if rubric.max_score != 100:
        yield 1, f"the points of all rules sum to {rubric.max_score}; they must sum to 100"
    for judged in (Judged.BUILD, Judged.LEAK, Judged.MEMORY_ERROR):
        ids = [rule.id for rule in rubric.rules if rule.judged is judged]
        if not ids and judged is Judged.BUILD:  # labs in Python have no rules about memory
            yield 1, f'no rule is judged by {judged}; write judged = "{judged}" in one'
        for rule_id in ids[1:]:
            line = line_of(text, "judged", f"rules.{rule_id}")
            yield line, f"{cut(ids[0])} is judged by {judged} already, not {cut(rule_id)}"


_LISTS = ("calls", "facets", "kinds", "circumstances", "tags", "never")
_KEYS = (*_LISTS, "part", "where", "rule", "sentence", "hint")
_NAMES = frozenset(
    "call field expected actual wanted refusal line clause reply note message".split()  # noqa: SIM905 - reads as a list
)
"""The names that a hint may use in braces; see `Mistake`."""


def _wrongly_accepted(judgement: Judgement) -> bool:
    return judgement.expected.refused and not judgement.actual.refused


def _wrongly_refused(judgement: Judgement) -> bool:
    return judgement.actual.refused and not judgement.expected.refused


def _changes(judgement: Judgement) -> bool:
    """Whether a call that must fail changed something. The field "the call" only says that the call succeeded."""
    return any(each.facet == "failing" and each.field != "the call" for each in judgement.differences)


PREDICATES: Mapping[str, Predicate] = {
    "wrongly-accepted": _wrongly_accepted,
    "wrongly-accepted-without-effect": lambda judgement: _wrongly_accepted(judgement) and not _changes(judgement),
    "wrongly-refused": _wrongly_refused,
    "wrongly-refused-without-effect": lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
}
"""Conditions that the mistakes of every lab may name.

A wrongly accepted call succeeded although it must fail; without effect, it changed nothing. A wrongly refused call
failed although it must succeed; without effect, its work was not done either."""

NamedMistake = tuple[Mistake, str]
"""A mistake without its predicate, and the name of the predicate ("" without one). A predicate cannot be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWords:
    """The words that entries of mistakes.toml may use."""

    calls: Collection[str]
    facets: Collection[str]
    rules: Collection[str]
    clauses: Collection[str]
    where: Collection[str]
    """The names of the predicates."""


def load_mistakes(
    path: Path, words: KnownWords, constants: Mapping[str, int] | None = None
) -> tuple[NamedMistake, ...]:
    """Load the known mistakes of a lab, in the order of the file; () if there is no file.

    Raises `RubricError` with all mistakes of the file.
    """
    if not path.exists():
        return ()
    file = TomlTable.read(path, RubricError, constants)
    file.check_keys(("kinds", "mistakes"))
    rows, kinds = file.rows("mistakes"), _kinds(file)
    mistakes = [_mistake(row, words, kinds) for row in rows]
    if not file.problems:
        for row, earlier in _unreachable(mistakes):
            line = line_of(file.text, "mistakes", "mistakes", earlier)
            rows[row].complain("rule", f"never used: the entry of line {line} fits whatever this one fits")
    file.check()
    return tuple(mistakes)


def with_predicates(mistakes: Iterable[NamedMistake], predicates: Mapping[str, Predicate]) -> tuple[Mistake, ...]:
    """Return the mistakes with the predicates that they name."""
    return tuple(replace(mistake, where=predicates[where]) if where else mistake for mistake, where in mistakes)


def _kinds(file: TomlTable) -> dict[str, frozenset[str]]:
    """Return the words that the table [kinds] defines, each with the kinds of findings that it means."""
    values = file.values.get("kinds", {})
    if not isinstance(values, dict):
        file.complain("kinds", 'kinds must be a table: write [kinds], and below it stops = ["crash", "hang"]')
        return {}
    table = replace(file, values=values, name="kinds")
    return {word: table.words(word, example="hang") for word in values}


def _mistake(row: TomlTable, words: KnownWords, kinds_by_word: Mapping[str, frozenset[str]]) -> NamedMistake:
    row.check_keys(_KEYS)
    kinds = row.words("kinds", example="hang")
    where = row.choice("where", words.where) if "where" in row.values else ""
    mistake = Mistake(
        rule=row.choice("rule", sorted(words.rules)),
        hint=_hint(row),
        calls=row.words("calls", words.calls),
        facets=row.words("facets", sorted(words.facets)),
        kinds=frozenset[str]().union(*(kinds_by_word.get(kind, {kind}) for kind in kinds)),
        circumstances=row.words("circumstances", example="refused"),
        tags=row.words("tags", example="refused"),
        part=_text(row, "part"),
        clause=_sentence(row, words),
        never=row.words("never", words.calls),
    )
    return mistake, where


def _sentence(row: TomlTable, words: KnownWords) -> str | dict[str, str]:
    """Return the name of the handout's sentence, or such a name for each call."""
    value = row.values.get("sentence", "")
    by_call = value if isinstance(value, dict) else {"": value}
    for call, name in by_call.items():
        if call and call not in words.calls:
            row.complain("sentence", f"unknown call {short(call)} in the sentence{row.hint(call, words.calls)}")
        if (name or call) and (not isinstance(name, str) or name not in words.clauses):
            row.complain("sentence", f"unknown sentence {short(str(name))}{row.hint(name, words.clauses)}")
    return value if isinstance(value, dict | str) else ""


def _hint(row: TomlTable) -> str:
    """Return the hint, and report names in braces that mean nothing."""
    hint = row.sentence("hint", '"...", what to look at')
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(hint) if name is not None]
    except ValueError:
        row.complain("hint", "the hint has a single brace; write {{ and }} for braces")
        return hint
    for name in names:
        if name not in _NAMES:
            known = f"; one of: {', '.join(sorted(_NAMES))}"
            row.complain("hint", f"unknown name {short(name)} in the hint{row.hint(name, _NAMES) or known}")
    return hint


def _text(row: TomlTable, key: str) -> str:
    value = row.values.get(key, "")
    if not isinstance(value, str):
        row.complain(key, f"{key} must be text in quotes")
        return ""
    return value


def _unreachable(mistakes: Sequence[NamedMistake]) -> Iterator[tuple[int, int]]:
    """Yield the rows that can never be used, each with an earlier row that is at least as general."""
    for row, mistake in enumerate(mistakes):
        yield from [(row, place) for place, other in enumerate(mistakes[:row]) if _covers(other, mistake)][:1]


def _covers(first: NamedMistake, second: NamedMistake) -> bool:
    """Whether `first` fits wherever `second` fits, because each of its conditions is at least as general.

    An empty set of calls, facets or kinds means any of them.
    """
    (general, where), (special, special_where) = first, second
    return (
        general.tags <= special.tags
        and general.circumstances <= special.circumstances
        and (not general.facets or (bool(special.facets) and special.facets <= general.facets))
        and (not general.kinds or (bool(special.kinds) and special.kinds <= general.kinds))
        and (not general.calls or (bool(special.calls) and special.calls <= general.calls))
        and general.never <= special.never
        and general.part in special.part
        and where in ("", special_where)
    )
