"""Write a case as the text of a case file, with a claim for each reply; `case_files` reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grader.core.case import Case, Grammar
from reference.operation import Operation, Reply

_SEED = "seed"
"""The setting that every case gets from the rubric or from --seed, not from its file."""


def case_text(case: Case, grammar: Grammar, *, title: str, clause: str, rule: str, comments: Sequence[str] = ()) -> str:
    """Return the text of the case, with this title, clause of the handout and rule; a public case.

    Operations that the grader adds to every such case are left out. `comments` stand at the top.
    """
    pairs = zip(case.trace.operations, case.expected.replies, strict=True)
    lines = [
        (str(operation), _reply(grammar, operation, reply)) for operation, reply in pairs if not operation.implicit
    ]
    width = max(len(call) for call, _ in lines)
    settings = {name: value for name, value in case.trace.settings.items() if name != _SEED}
    values = {"title": title, "handout": clause, "rule": rule, "visibility": "public", **settings}
    widest = max(map(len, values))
    return "".join(
        f"{line}\n"
        for line in (
            *(f"# {comment}" for comment in comments),
            *(f"{name:{widest}} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()),
            "",
            "operations = '''",
            *(f"{call:{width}}{reply}".rstrip() for call, reply in lines),
            "'''",
        )
    )


def _reply(grammar: Grammar, operation: Operation, reply: Reply) -> str:
    return "" if grammar.operations[operation.name].is_poke else f" -> {reply.text}"
