"""What students see by the policy of the rubric: the same part in every format, and instructors everything."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from grader.core.record import Override, Record, SmallestTrace
from grader.core.verdict import Audience, Feedback
from grader.report import FORMATS
from grader.report.document import View, released
from grader.tests.support.graded import drawn
from grader.tests.support.readers import READERS

SAMPLES = ("four_common_mistakes", "no_copy_on_write", "free_keeps_l2_tables", "sign_compare", "all_null", "yoda_crlf")
LIMITED = sorted(FORMATS.keys() - {"json"})
_STRUCTURE = re.compile(r'<style>.*?</style>|<script>.*?</script>|"rules": \[\]')
"""Words that belong to a format and tell nothing."""
_LONG = 12
"""Characters: shorter texts may stand in a report by chance."""


def submitted(name: str, feedback: Feedback, **changes: object) -> Record:
    """A real submission under a policy, without the label in the name of its folder."""
    record = drawn(name)
    changed = {"submission": replace(record.submission, name="ada"), "feedback": feedback, **changes}
    return replace(record, **changed)  # type: ignore[arg-type]  # fields of a record


def words(report: str) -> str:
    """The text of a report, whatever its format escapes."""
    return re.sub(r"\s+", " ", html.unescape(html.unescape(report)).replace("\\n", " "))


def of_cases(record: Record) -> set[str]:
    """All texts that say what went wrong: of causes, cases, findings, pictures, advice."""
    causes = [text for cause in record.causes for text in (cause.sentence, cause.hint, cause.clause, *cause.cases)]
    cases = [text for outcome in record.outcomes for text in (outcome.case, outcome.title, *outcome.clauses)]
    steps = [step.call for outcome in record.outcomes for step in outcome.steps]
    findings = [text for finding in record.findings for text in (finding.message, finding.field, finding.hint)]
    lines = [str(line) for cause in record.causes for line in cause.lines]
    texts = [*causes, *cases, *steps, *findings, *lines, *(advice.message for advice in record.advice)]
    titles = {text for rule in record.rules for text in (rule.rule, rule.title)}
    return {re.sub(r"\s+", " ", text) for text in texts if len(text) >= _LONG} - titles


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("sample", SAMPLES)
def test_with_score_nothing_but_score_and_verdict_is_shown(name: str, sample: str) -> None:
    """No rule, no case, no cause, in any format; and it is still one that its readers accept."""
    record = submitted(sample, Feedback.SCORE)
    view = View(everything=True)
    report = FORMATS[name](record, view)
    text = words(report)

    ids = {rule.rule for rule in record.rules if "-" in rule.rule or rule.rule in ("traversal", "isolation")}
    assert [part for part in of_cases(record) | ids | {rule.title for rule in record.rules} if part in text] == []
    assert not re.search(r"\b(rules?|cases?|causes?|hints?)\b", _STRUCTURE.sub("", text))
    assert str(record.score) in text
    READERS[name](report, view)


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("sample", SAMPLES)
def test_with_rules_the_points_of_each_rule_are_shown(name: str, sample: str) -> None:
    """And nothing of cases and causes."""
    record = submitted(sample, Feedback.RULES)
    view = View(everything=True)
    report = FORMATS[name](record, view)
    text = words(report)

    assert [part for part in of_cases(record) if part in text] == []
    if name in ("text", "html", "gradescope", "classroom50", "junit", "summary"):
        assert [rule.rule for rule in record.rules if rule.rule not in text] == []
    READERS[name](report, view)


def test_what_a_score_hides_no_decision_tells() -> None:
    """With `score` a decision about a rule stays unsaid; its points count."""
    decided = Override(submission="ada", rule="cow", points=10, reason="agreed in the lecture", by="Lee", was=0)
    for feedback, told in ((Feedback.SCORE, False), (Feedback.RULES, True), (Feedback.FULL, True)):
        record = submitted("no_copy_on_write", feedback, overrides=(decided,))

        assert ("agreed in the lecture" in words(FORMATS["text"](record, View(width=200)))) is told


@pytest.mark.parametrize("feedback", [Feedback.SCORE, Feedback.RULES])
def test_a_smaller_trace_is_withheld_with_its_case(feedback: Feedback) -> None:
    """It says what went wrong in the case for which it was searched."""
    trace = SmallestTrace(case="append/x", calls=("append_kv 1 5",), sentence="the reply is wrong")

    assert released(submitted("no_copy_on_write", feedback, smallest=trace), Audience.STUDENT).smallest is None
