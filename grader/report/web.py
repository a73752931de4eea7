"""A web page in one file, which loads nothing and allows only its own script and style, by their hashes."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from grader.report.document import Document, as_html

_FOLDER = Path(__file__).with_name("web")
_SHELL = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%(policy)s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{{ title }}</title>
<style>%(style)s</style>
</head>
<body>
%(body)s<script>%(script)s</script>
</body>
</html>
"""


def web_page(name: str, *, title: str, **values: object) -> Document:
    """Return the page `name` (template and script are in the folder `web`), with every value in it escaped."""
    return as_html(_template(name), title=title, **values)


@cache
def _template(name: str) -> str:
    style, script = _read("page.css"), _read("table.js" if name == "class" else "steps.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    body = _read("parts.jinja") + _read("chart.jinja") + _read(f"{name}.jinja")
    return _SHELL % {"policy": policy, "style": style, "script": script, "body": body}


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
