"""Copies of programs, disguised as students do it: other names, other comments, other layout."""

from __future__ import annotations

import builtins
import io
import keyword
import re
import tokenize

_WORDS_OF_C = frozenset(
    re.findall(
        r"\w+",
        "auto bool break case char const continue default do double else enum extern false float for goto if include "
        "inline int long register return short signed sizeof static struct switch true typedef union unsigned void "
        "volatile while define defined endif ifdef ifndef",
    )
)
_WORDS_OF_PYTHON = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins)})


def disguised(text: str, suffix: str) -> str:
    """Return a copy of a program in C or Python."""
    return _python(text) if suffix == ".py" else _c(text)


def _c(text: str) -> str:
    """Rename, delete the comments, and break lines elsewhere."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    lines = ["/* all my own work */\f"]
    for line in text.split("\n"):
        if line.lstrip().startswith("#include"):
            lines.append(line)
        elif line.strip():
            renamed = re.sub(r'"[^"\n]*"|\b[a-z_]\w*\b', _other_name, line)
            lines += [f"\v{part.strip()}\f" for part in re.split(r"(?<=\))\s*(?=\{)", renamed)] + [""]
    return "\n".join(lines)


def _other_name(match: re.Match[str]) -> str:
    name = match.group()
    return name if name in _WORDS_OF_C or name.endswith("_t") or name.startswith('"') else f"my{name[::-1]}"


def _python(text: str) -> str:
    """Rename, write another comment, and leave lines free."""
    lines = text.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        (row, start), (_, end) = token.start, token.end
        line = lines[row - 1]
        if token.type == tokenize.COMMENT:
            lines[row - 1] = f"{line[:start]}# all my own work"
        elif token.type == tokenize.NAME and token.string not in _WORDS_OF_PYTHON and not token.string.startswith("__"):
            lines[row - 1] = f"{line[:start]}my_{token.string[::-1]}{line[end:]}"
        elif token.type == tokenize.NEWLINE:
            lines.insert(row, "")
    return "\n".join(lines)
