"""JUnit XML as Jenkins, GitLab and the actions of GitHub read it: a suite for each rule, with the rule's cases.

A suite passes when its rule has all points. The points and a decision of people about the rule are its properties.
What the program printed is left out, because GitLab and Jenkins attach files that are named in such output. The file is
valid by the schema that Jenkins' xUnit plugin requires (junit-10.xsd), so no case names a file; the case files are not
in the student's repository. No time is reported, because the time that a program takes in a hidden case would reveal
information about that case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from grader.core.record import Record
from grader.core.verdict import Audience, Outcome, RuleScore, Verdict
from grader.report.by_rule import case_in_full, judged, not_run, rule_summary
from grader.report.document import Document, View, as_xml, held_back
from grader.report.phrases import decision_of, points_of, result_of

_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
"""The elements that say how a case ended, and the attributes that count them. A case without any of them passed."""

_ERRORS = (Verdict.COMPILE_ERROR, Verdict.REJECTED, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED)


def render(record: Record, view: View) -> Document:
    """Return the whole file."""
    root = ET.Element("testsuites", name=f"{record.submission.name}: {result_of(record)}, {points_of(record)}")
    if record.verdict.is_ours:
        suite = ET.SubElement(root, "testsuite", name="grader")
        case = ET.SubElement(suite, "testcase", classname="grader", name=result_of(record))
        ET.SubElement(case, "error", type=record.verdict, message="no point is given or taken")
    else:
        suites = _Suites(record, view.audience)
        root.extend(suites.suite(rule) for rule in judged(record))
        if not len(root):
            root.append(_score_alone(record))
    for element in (*root, root):
        _count(element)
    del root.attrib["skipped"]  # Jenkins' schema allows it in suites only
    ET.indent(root, " ")
    return as_xml(root)


def _score_alone(record: Record) -> ET.Element:
    """Return a suite with the score only, for a reader who may not see more. The suite passes with all points."""
    suite = ET.Element("testsuite", name="score")
    case = ET.SubElement(suite, "testcase", classname="score", name=points_of(record))
    if not record.verdict.passed:
        failure = ET.SubElement(case, "failure", type=record.verdict, message=result_of(record))
        failure.text = f"{points_of(record)}. {held_back(record)}"
    return suite


class _Suites:
    """Makes the suites of a record, one for each rule."""

    def __init__(self, record: Record, audience: Audience) -> None:
        self.record, self.audience = record, audience
        self.shown = {cause.cases[0] for cause in record.causes_for(audience)}
        """The cases that represent their causes and are shown in full. Other cases say only what is wrong."""

    def suite(self, rule: RuleScore) -> ET.Element:
        """Return the suite of a rule with its points and cases.

        The suite has an entry for the rule itself if the rule has no cases, or lost points although all cases passed.
        """
        suite = ET.Element("testsuite", name=rule.rule)
        properties = ET.SubElement(suite, "properties")
        about = {"title": rule.title, "handout": rule.handout, "points": rule.points, "max_points": rule.max_points}
        decision = decision_of(self.record, rule.rule)
        for name, value in (about | ({"decided": decision} if decision else {})).items():
            ET.SubElement(properties, "property", name=name, value=str(value))
        own = [outcome for outcome in self.record.outcomes if outcome.rule == rule.rule]
        if not own or (rule.points < rule.max_points and all(outcome.passed for outcome in own)):
            self._rule(ET.SubElement(suite, "testcase", classname=rule.rule, name=rule.title), rule)
        settled = decision if rule.points == rule.max_points else ""
        for outcome, name in zip(own, self._names(own), strict=True):
            self._case(ET.SubElement(suite, "testcase", classname=rule.rule, name=name), outcome, settled)
        return suite

    def _names(self, outcomes: list[Outcome]) -> Iterator[str]:
        """Yield a unique title for each case, because GitLab drops a case with the name of another case."""
        seen: Counter[str] = Counter()
        for outcome in outcomes:
            seen[outcome.title] += 1
            hidden = " (hidden)" if outcome.hidden_from(self.audience) else ""
            yield f"{outcome.title}{hidden}" + (f" ({seen[outcome.title]})" if seen[outcome.title] > 1 else "")

    def _rule(self, case: ET.Element, rule: RuleScore) -> None:
        if rule.points == rule.max_points:
            return
        if not_run(self.record, rule):
            ET.SubElement(case, "skipped", message="nothing could be run")
        else:
            verdict, message = self.record.verdict, f"{rule.points} of {rule.max_points} points"
            bad = ET.SubElement(case, _tag(verdict), type=verdict, message=message)
            bad.text = rule_summary(self.record, rule, self.audience)

    def _case(self, case: ET.Element, outcome: Outcome, settled: str) -> None:
        """Fill the element of a case, which fails when it costs points of its rule.

        Points that the case costs other rules are in their suites. If people gave the rule all its points, a failing
        case is marked as skipped, with their decision (`settled`).
        """
        hidden = outcome.hidden_from(self.audience)
        if outcome.passed:
            return
        if settled:
            ET.SubElement(case, "skipped", message=f"fails, and costs no point: {settled}")
            return
        if hidden:
            message = "a hidden case; what it does is not shown"
            ET.SubElement(case, "failure", type="hidden", message=message).text = message
            return
        leading = self.record.first_finding(outcome)
        message = leading.message if leading is not None else ""
        bad = ET.SubElement(case, _tag(outcome.verdict), type=outcome.verdict, message=message)
        whole = outcome.case in self.shown
        bad.text = case_in_full(self.record, outcome) if whole else f"{outcome.case}: {message}"


def _tag(verdict: Verdict) -> str:
    """Return the element's name: "failure" for a wrong state, "error" when the program could not continue."""
    return "error" if verdict in _ERRORS else "failure"


def _count(element: ET.Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for tag, attribute in _COUNTED.items():
        element.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
