"""Syntax colours for lines of C, for web pages."""

from __future__ import annotations

from collections.abc import Iterator

from grader.report.excerpt import Excerpt, ExcerptLine

Piece = tuple[str, str]
"""The kind of the text (key, com, str, num, pre, or empty), and the text."""


def coloured(excerpt: Excerpt) -> list[tuple[ExcerptLine, list[Piece]]]:
    """Return the lines of an excerpt, each with its pieces."""
    return list(zip(excerpt.lines, _lines(excerpt), strict=True))


def _lines(excerpt: Excerpt) -> Iterator[list[Piece]]:
    from pygments.lexers.c_cpp import CLexer  # noqa: PLC0415 - slow to import, and only web pages need it
    from pygments.token import Comment, Keyword, Number, String  # noqa: PLC0415

    kinds = ((Comment.Preproc, "pre"), (Comment, "com"), (Keyword, "key"), (String, "str"), (Number, "num"))
    lexer = CLexer(stripnl=False, ensurenl=False)  # type: ignore[no-untyped-call]
    opening = "/*" if excerpt.in_comment else ""
    left = len(opening)
    pieces: list[Piece] = []
    for token, value in lexer.get_tokens(opening + "\n".join(line.text for line in excerpt.lines)):
        name = next((name for known, name in kinds if known in token.split()), "")
        text, left = value[left:], max(0, left - len(value))
        for place, part in enumerate(text.split("\n")):
            if place:
                yield pieces
                pieces = []
            if part:
                pieces.append((name, part))
    yield pieces
