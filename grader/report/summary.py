"""A job's summary for GitHub: a table of points, and below it what goes wrong, as Markdown."""

from __future__ import annotations

from grader.core.record import Record
from grader.report import text
from grader.report.document import Document, View, as_markdown
from grader.report.phrases import points_of, result_of
from grader.report.rule_summary import judged
from grader.report.text import ReportPart

_MOST_DETAILS = 20_000
"""In characters. An escaped one takes up to 12 bytes; GitHub accepts 1 MiB per step, and drops a longer summary."""

_TEMPLATE = """\
## {{ name }}: {{ result }}, {{ points }}

{% if rules %}
| | Rule | Points | |
|---|---|--:|---|
{% for rule in rules %}
| {% if rule.points == rule.max_points %}✓{% else %}**✗**{% endif %} | <code>{{ rule.rule }}</code> \
| {{ rule.points }} / {{ rule.max_points }} | {{ rule.title }} |
{% endfor %}

{% endif %}
<pre>
{{ details }}
</pre>
"""


def render(record: Record, view: View) -> Document:
    """Return the whole page."""
    details: str = text.render(record, audience=view.audience, without=(ReportPart.POINTS,), everything=True)
    if len(details) > _MOST_DETAILS:
        details = f"{details[:_MOST_DETAILS]}\n... (cut here)"
    return as_markdown(
        _TEMPLATE,
        name=record.submission.name,
        result=result_of(record),
        points=points_of(record),
        rules=judged(record) if record.score is not None else [],
        details=details,
    )
