"""A reader of the grader's web pages without a browser: all elements, attributes and links must be known."""

from __future__ import annotations

import re

from grader.core.sanitize import plain
from grader.report.document import View
from grader.tests.support.injected import Page, obeyed

_OURS = {
    "html": "lang",
    "meta": "charset http-equiv content name",
    "header": "class",
    "h2": "id",
    "h3": "id",
    "section": "class aria-labelledby",
    "p": "class hidden",
    "b": "class",
    "ul": "class",
    "ol": "class",
    "li": "class",
    "dt": "class",
    "a": "href",
    "table": "class id",
    "tr": "id class data-fails data-verdict",
    "th": "class scope aria-sort",
    "td": "class colspan data-at data-sort",
    "span": "class id hidden role",
    "pre": "tabindex",
    "div": "class hidden data-bad aria-live tabindex role aria-labelledby",
    "input": "type min max value aria-label id placeholder",
    "select": "id",
    "option": "value",
    "button": "type data-go data-scene class aria-current data-key data-what data-copy",
    "details": "class open",
    "summary": "id",
    "figure": "class",
    "figcaption": "class",
    "caption": "",
    "svg": "class height role aria-label width aria-hidden viewbox",
    "line": "class x1 y1 x2 y2",
    "g": "class stroke-width",
    "text": "class x y text-anchor transform",
    "rect": "class x y width height rx",
    "path": "class d",
}
"""The elements that may have attributes, with these attributes; none of these does anything by itself."""

_BARE = "head title style body script main footer h1 h4 br i strong small code dl dd thead tbody details summary label"
"""The other elements."""


class _Links(Page):
    """A page with the targets of its links."""

    def __init__(self, html: str) -> None:
        self.links: list[str] = []
        super().__init__(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store the target of a link."""
        self.links += [value or "" for name, value in attrs if name == "href"]
        super().handle_starttag(tag, attrs)


def reads_page(report: str, view: View) -> None:
    """Read a page as a browser does, and as a runner whose log it is printed to.

    It may have only known elements, one script and one style, and links to lines and to reports, beside it or in
    their folder.
    """
    page = _Links(report)

    for element in page.elements:
        tag, *attributes = element.split(" ")
        assert tag.removeprefix("/") in {*_OURS, *_BARE.split()}, element
        assert set(attributes) <= set(_OURS.get(tag, "").split()), element
    assert (page.elements.count("script"), page.elements.count("style")) == (1, 1)
    assert [link for link in page.links if not re.fullmatch(r"#[LR]\d+|(\.\./students/)?[\w-]+\.html", link)] == []
    assert plain(report) == report
    assert obeyed(report) == []
