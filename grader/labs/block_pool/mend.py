"""How a case of the block pool is played again beside something right, so that one broken helper does not cost all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grader.core.case import Case, frozen
from grader.core.rubric import Rule
from grader.judge.work import asked_calls
from grader.labs.python_lab import stand_in
from reference.operation import Argument, Operation

STAND_IN = Path(__file__).with_name("stand_in.py")
_MAKES_A_POOL = {"pool", "mgr"}


def mend(case: Case, rule: Rule, wrong: frozenset[str]) -> Mapping[int, Operation]:
    """A new pool gets a right queue; behind each call that goes wrong the state becomes the reference's.

    Not in cases that are about the call, or about queues.
    """
    about, source = asked_calls(case, rule), stand_in(STAND_IN)
    if not about or not source or not wrong.isdisjoint(about & _MAKES_A_POOL):
        return {}
    pokes: dict[int, Operation] = {}
    for number, operation in enumerate(case.trace.operations):
        if operation.name in _MAKES_A_POOL:
            pokes[number] = Operation(name="_stand_in", arguments=(source,))
        elif operation.name in wrong - about:
            state = json.loads(case.expected.records[number])["state"]
            pokes[number] = Operation(name="_become", arguments=_arguments(state))
    return pokes


def _arguments(state: dict[str, Any]) -> tuple[Argument, ...]:
    lists = [state[name] for name in ("free", "ref", "hash", "payload")]
    pairs = [state[name].items() for name in ("index", "tables", "ncached")]
    computed = [(name, tokens) for name, (_, tokens, _) in state["requests"].items()]
    return tuple(frozen(list(value)) for value in (*lists, *pairs, computed))
